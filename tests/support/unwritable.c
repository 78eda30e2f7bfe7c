// A module that loads another one, and stands between it and the server. It imitates a server that saves keys without a
// child process, as Valkey 9.2 can: a key whose name starts with "unwritable" can be opened for reading, but not for
// writing. If the other module has set the option for such saves, HANDLE_FORKLESS, the server crashes when that module
// reads such a key with StringDMA, which may change the encoding of a value that is being saved.
//
// To the other module, the server seems to have this option. The log lists the options that the server has, including
// this one, and those that the other module sets.
//
// The arguments at load are the other module's path, and then its own arguments. If the word "valkey" comes first, the
// other module takes any server for a Valkey. If the name of a function of the API comes first, the server lacks this
// function. MODULE LIST shows only the other module.

#include "redismodule.h"
#include <dlfcn.h>
#include <string.h>

// VALKEYMODULE_OPTIONS_HANDLE_FORKLESS.
#define HANDLE_FORKLESS (1 << 6)

static int options;
static const char *first_word;
static RedisModuleKey *unwritable;

static RedisModuleKey *open_key(RedisModuleCtx *ctx, RedisModuleString *name, int mode) {
    if (strncmp(RedisModule_StringPtrLen(name, NULL), "unwritable", 10)) return RedisModule_OpenKey(ctx, name, mode);
    return unwritable = mode & REDISMODULE_WRITE ? NULL : RedisModule_OpenKey(ctx, name, mode);
}

static char *string_dma(RedisModuleKey *key, size_t *length, int mode) {
    if (key == unwritable && options & HANDLE_FORKLESS) __builtin_trap();
    return RedisModule_StringDMA(key, length, mode);
}

static int all_options(void) {
    // Redis 6.2 lacks the function.
    return (RedisModule_GetModuleOptionsAll ? RedisModule_GetModuleOptionsAll() : 0) | HANDLE_FORKLESS;
}

static void set_options(RedisModuleCtx *ctx, int set) {
    options = set;
    RedisModule_SetModuleOptions(ctx, set & ~HANDLE_FORKLESS);
}

static int get_api(const char *name, void *function) {
    const struct {
        const char *name;
        void *function;
    } replaced[] = {
        {"RedisModule_OpenKey", open_key},
        {"RedisModule_StringDMA", string_dma},
        {"RedisModule_GetModuleOptionsAll", all_options},
        {"RedisModule_SetModuleOptions", set_options},
    };
    if (!strcmp(name, first_word)) return REDISMODULE_ERR;
    // Only Valkey has a function of this name.
    if (!strcmp(first_word, "valkey") && !strcmp(name, "ValkeyModule_SetModuleOptions")) name = replaced[3].name;
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
        if (strcmp(name, replaced[i].name)) continue;
        *(void **)function = replaced[i].function;
        return REDISMODULE_OK;
    }
    return RedisModule_GetApi(name, function);
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    RedisModule_InitAPI(ctx);
    if (!argc) return REDISMODULE_ERR;
    first_word = RedisModule_StringPtrLen(argv[0], NULL);
    if (*first_word != '/') argv++, argc--;
    void *library = dlopen(RedisModule_StringPtrLen(argv[0], NULL), RTLD_NOW | RTLD_LOCAL);
    if (!library) return REDISMODULE_ERR;
    RedisModuleCmdFunc load = (RedisModuleCmdFunc)dlsym(library, "RedisModule_OnLoad");
    // A context starts with the function that looks up all others.
    *(void **)ctx = get_api;
    int status = load(ctx, argv + 1, argc - 1);
    *(void **)ctx = RedisModule_GetApi;
    RedisModule_Log(ctx, "notice", "the server knows the options %d, the module sets %d", all_options(), options);
    return status;
}
