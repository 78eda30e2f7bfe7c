// A module that loads another one, and stands between it and the server. It imitates a server that saves keys without a
// child process, as Valkey 9.2 can: a key whose name starts with "unwritable" can be opened for reading, but not for
// writing. If the other module has set the option for such saves, HANDLE_FORKLESS, the server crashes when that module
// reads such a key with StringDMA, which may change the encoding of a value that is being saved.
//
// To the other module, the server seems to have this option. The log lists the options that the server has, including this
// one, and those that the other module sets.
//
// The arguments at load are the other module's path, and then its own arguments. If the word "valkey" comes first, the
// other module takes any server for a Valkey. If the name of a function of the API comes first, the server lacks this
// function. MODULE LIST shows only the other module.

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define OK 0
#define ERR 1
#define WRITE 2
// VALKEYMODULE_OPTIONS_HANDLE_FORKLESS.
#define HANDLE_FORKLESS (1 << 6)

typedef void context, string, key;
typedef int get_api_function(const char *, void *);

static get_api_function *get_api;
static key *(*open_key)(context *, string *, int);
static const char *(*text_of)(const string *, size_t *);
static int (*all_options)(void);
static void (*set_options)(context *, int);
static void (*write_log)(context *, const char *, const char *, ...);
static const char *(*bytes_of)(key *, size_t *, int);
static int options;
static int is_valkey;
static const char *missing = "";
static key *unwritable;

static key *open_key_unless_unwritable(context *ctx, string *name, int mode) {
    static const char prefix[] = "unwritable";
    size_t length;
    const char *text = text_of(name, &length);
    if (length < sizeof prefix - 1 || memcmp(text, prefix, sizeof prefix - 1)) return open_key(ctx, name, mode);
    return unwritable = mode & WRITE ? NULL : open_key(ctx, name, mode);
}

static const char *bytes_unless_unwritable(key *handle, size_t *length, int mode) {
    if (handle == unwritable && options & HANDLE_FORKLESS) __builtin_trap();
    return bytes_of(handle, length, mode);
}

static int all_options_and_forkless(void) {
    return (all_options ? all_options() : 0) | HANDLE_FORKLESS;
}

static void set_options_but_forkless(context *ctx, int set) {
    options = set;
    set_options(ctx, set & ~HANDLE_FORKLESS);
}

static int get_another_api(const char *name, void *function) {
    if (!strcmp(name, missing)) return ERR;
    int status = get_api(name, function);
    void *replacement = NULL;
    if (!strcmp(name, "RedisModule_OpenKey")) {
        memcpy(&open_key, function, sizeof open_key);
        replacement = (void *)open_key_unless_unwritable;
    } else if (!strcmp(name, "RedisModule_StringDMA")) {
        memcpy(&bytes_of, function, sizeof bytes_of);
        replacement = (void *)bytes_unless_unwritable;
    } else if (!strcmp(name, "RedisModule_GetModuleOptionsAll")) {
        memcpy(&all_options, function, sizeof all_options);
        replacement = (void *)all_options_and_forkless;
    } else if (!strcmp(name, "RedisModule_SetModuleOptions")) {
        memcpy(&set_options, function, sizeof set_options);
        replacement = (void *)set_options_but_forkless;
    } else if (is_valkey && !strcmp(name, "ValkeyModule_SetModuleOptions")) {
        // Only Valkey has a function of this name.
        replacement = (void *)set_options_but_forkless;
    }
    if (replacement) memcpy(function, &replacement, sizeof replacement);
    return replacement ? OK : status;
}

int RedisModule_OnLoad(context *ctx, string **argv, int argc) {
    // A context starts with the function that looks up all others.
    get_api_function **start = ctx;
    get_api = *start;
    if (!argc || get_api("RedisModule_StringPtrLen", &text_of) || get_api("RedisModule_Log", &write_log)) return ERR;
    const char *word = text_of(argv[0], NULL);
    is_valkey = !strcmp(word, "valkey");
    if (!strncmp(word, "RedisModule_", 12)) missing = word;
    if (is_valkey || *missing) argv++, argc--;
    void *library = dlopen(text_of(argv[0], NULL), RTLD_NOW | RTLD_LOCAL);
    if (!library) return ERR;
    int (*load)(context *, string **, int) = (int (*)(context *, string **, int))dlsym(library, "RedisModule_OnLoad");
    if (!load) return ERR;
    *start = get_another_api;
    int status = load(ctx, argv + 1, argc - 1);
    *start = get_api;
    int known = all_options_and_forkless();
    write_log(ctx, "notice", "the server knows the options %d, the module sets %d", known, options);
    return status;
}
