// A module that loads another module, and stands between that module and the server. The shim imitates a server that
// saves keys without a child process, as Valkey 9.2 can: a key whose name starts with "unwritable" can be opened for
// reading, but not for writing. To the other module, the server seems to have the option for such saves,
// HANDLE_FORKLESS. If the other module sets this option:
//
// * the server crashes when the other module reads an unwritable key with StringDMA, because StringDMA may change the
//   encoding of a value that is being saved;
// * the other module does not see that a child process saves: no flag shows the process, and its start is reported as
//   the start of a snapshot.
//
// The server's log lists the options that the server has, including HANDLE_FORKLESS, and those that the other module
// sets. After a load and after an unload, the log also shows how many strings and sections of INFO the other module has
// not freed.
//
// The arguments at load are the other module's path and that module's own arguments. One word may come before the path.
// With "valkey", any server looks like Valkey to the other module. With the name of an API function, the server seems
// to lack that function. MODULE LIST shows only the other module.

#include "redismodule.h"
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

// VALKEYMODULE_OPTIONS_HANDLE_FORKLESS.
#define HANDLE_FORKLESS (1 << 6)

static int options, strings, sections;
static const char *first_word;
static void *library;
static RedisModuleKey *unwritable;
static RedisModuleEventCallback snapshot;

static RedisModuleKey *open_key(RedisModuleCtx *ctx, RedisModuleString *name, int mode) {
    if (strncmp(RedisModule_StringPtrLen(name, NULL), "unwritable", 10)) return RedisModule_OpenKey(ctx, name, mode);
    return unwritable = mode & REDISMODULE_WRITE ? NULL : RedisModule_OpenKey(ctx, name, mode);
}

static char *string_dma(RedisModuleKey *key, size_t *length, int mode) {
    if (key == unwritable && options & HANDLE_FORKLESS) __builtin_trap();
    return RedisModule_StringDMA(key, length, mode);
}

static int all_options(void) {
    // Redis 6.2 lacks the function GetModuleOptionsAll.
    return (RedisModule_GetModuleOptionsAll ? RedisModule_GetModuleOptionsAll() : 0) | HANDLE_FORKLESS;
}

static void set_options(RedisModuleCtx *ctx, int set) {
    options = set;
    RedisModule_SetModuleOptions(ctx, set & ~HANDLE_FORKLESS);
}

static int context_flags(RedisModuleCtx *ctx) {
    return RedisModule_GetContextFlags(ctx) & (options & HANDLE_FORKLESS ? ~REDISMODULE_CTX_FLAGS_ACTIVE_CHILD : ~0);
}

static void forked(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t kind, void *data) {
    (void)event, (void)data;
    if (kind == REDISMODULE_SUBEVENT_FORK_CHILD_BORN && snapshot)
        snapshot(ctx, RedisModuleEvent_Persistence, REDISMODULE_SUBEVENT_PERSISTENCE_RDB_START, NULL);
}

static int subscribe(RedisModuleCtx *ctx, RedisModuleEvent event, RedisModuleEventCallback handler) {
    if (!(options & HANDLE_FORKLESS)) return RedisModule_SubscribeToServerEvent(ctx, event, handler);
    if (event.id == REDISMODULE_EVENT_FORK_CHILD) return REDISMODULE_OK;
    if (event.id != REDISMODULE_EVENT_PERSISTENCE) return RedisModule_SubscribeToServerEvent(ctx, event, handler);
    snapshot = handler;
    return RedisModule_SubscribeToServerEvent(ctx, RedisModuleEvent_ForkChild, forked);
}

static RedisModuleString *create_string(RedisModuleCtx *ctx, const char *text, size_t length) {
    strings++;
    return RedisModule_CreateString(ctx, text, length);
}

static void free_string(RedisModuleCtx *ctx, RedisModuleString *string) {
    strings--;
    RedisModule_FreeString(ctx, string);
}

static RedisModuleServerInfoData *get_info(RedisModuleCtx *ctx, const char *section) {
    sections++;
    return RedisModule_GetServerInfo(ctx, section);
}

static void free_info(RedisModuleCtx *ctx, RedisModuleServerInfoData *section) {
    sections--;
    RedisModule_FreeServerInfo(ctx, section);
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
        {"RedisModule_GetContextFlags", context_flags},
        {"RedisModule_SubscribeToServerEvent", subscribe},
        {"RedisModule_CreateString", create_string},
        {"RedisModule_FreeString", free_string},
        {"RedisModule_GetServerInfo", get_info},
        {"RedisModule_FreeServerInfo", free_info},
    };
    if (!strcmp(name, first_word)) return REDISMODULE_ERR;
    // Only Valkey has a function with this name, and the other module recognizes Valkey by it.
    if (!strcmp(first_word, "valkey") && !strcmp(name, "ValkeyModule_SetModuleOptions")) name = replaced[3].name;
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
        if (strcmp(name, replaced[i].name)) continue;
        *(void **)function = replaced[i].function;
        return REDISMODULE_OK;
    }
    return RedisModule_GetApi(name, function);
}

static void log_unfreed(RedisModuleCtx *ctx, const char *after) {
    RedisModule_Log(ctx, "notice", "not freed after the %s: strings %d, sections %d", after, strings, sections);
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    RedisModule_InitAPI(ctx);
    if (!argc) return REDISMODULE_ERR;
    first_word = RedisModule_StringPtrLen(argv[0], NULL);
    if (*first_word != '/') argv++, argc--;
    library = dlopen(RedisModule_StringPtrLen(argv[0], NULL), RTLD_NOW | RTLD_LOCAL);
    if (!library) return REDISMODULE_ERR;
    RedisModuleCmdFunc load = (RedisModuleCmdFunc)dlsym(library, "RedisModule_OnLoad");
    // A context starts with a pointer to the function that looks up all others. Replace it during the load.
    *(void **)ctx = get_api;
    int status = load(ctx, argv + 1, argc - 1);
    *(void **)ctx = RedisModule_GetApi;
    RedisModule_Log(ctx, "notice", "the server knows the options %d, the module sets %d", all_options(), options);
    log_unfreed(ctx, "load");
    return status;
}

int RedisModule_OnUnload(RedisModuleCtx *ctx) {
    int status = ((int (*)(RedisModuleCtx *))dlsym(library, "RedisModule_OnUnload"))(ctx);
    log_unfreed(ctx, "unload");
    return status;
}
