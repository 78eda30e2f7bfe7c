// Loads another module, and stands between it and the server: a key whose name begins with "unwritable" cannot be opened
// for writing, as while Valkey 9.2 saves the key without a child process. Opened for reading, it is as ever.
//
// Arguments at load are the other module's path and its own arguments.
//
// The module that is loaded is the other one: its name, its commands.

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define ERR 1
#define WRITE 2

typedef void context, string, key;
typedef int get_api_function(const char *, void *);

static get_api_function *get_api;
static key *(*open_key)(context *, string *, int);
static const char *(*text_of)(const string *, size_t *);

static key *open_key_unless_unwritable(context *ctx, string *name, int mode) {
    static const char prefix[] = "unwritable";
    size_t length;
    const char *text = text_of(name, &length);
    if (mode & WRITE && length >= sizeof prefix - 1 && !memcmp(text, prefix, sizeof prefix - 1)) return NULL;
    return open_key(ctx, name, mode);
}

static int get_another_api(const char *name, void *function) {
    int status = get_api(name, function);
    if (!strcmp(name, "RedisModule_OpenKey")) {
        memcpy(&open_key, function, sizeof open_key);
        key *(*replacement)(context *, string *, int) = open_key_unless_unwritable;
        memcpy(function, &replacement, sizeof replacement);
    }
    return status;
}

int RedisModule_OnLoad(context *ctx, string **argv, int argc) {
    // A context begins with the function that looks up all the others.
    get_api_function **start = ctx;
    get_api = *start;
    if (!argc || get_api("RedisModule_StringPtrLen", &text_of)) return ERR;
    void *library = dlopen(text_of(argv[0], NULL), RTLD_NOW | RTLD_LOCAL);
    if (!library) return ERR;
    int (*load)(context *, string **, int) = (int (*)(context *, string **, int))dlsym(library, "RedisModule_OnLoad");
    if (!load) return ERR;
    *start = get_another_api;
    int status = load(ctx, argv + 1, argc - 1);
    *start = get_api;
    return status;
}
