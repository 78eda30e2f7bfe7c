// The start of a module: the server's functions that callbacks.c and redis_cell.c share, and how they look up functions.

#include <stddef.h>

#define OK 0
#define ERR 1

typedef void context, string, reply;

static int (*get_api)(const char *, void *);
static int (*create_command)(context *, const char *, int (*)(context *, string **, int), const char *, int, int, int);
static reply *(*call)(context *, const char *, const char *, ...);
static void (*free_reply)(reply *);
static int (*reply_integer)(context *, long long);

struct function {
    const char *name;
    void *pointer;
};

// Looks up the functions above and these, which end with one without a name, and sets the module's name.
static int begin(context *ctx, const char *name, const struct function *functions) {
    // A context starts with the function that looks up all others.
    get_api = *(int (**)(const char *, void *))ctx;
    void (*set_attributes)(context *, const char *, int, int);
    const struct function shared[] = {
        {"RedisModule_SetModuleAttribs", &set_attributes},
        {"RedisModule_CreateCommand", &create_command},
        {"RedisModule_Call", &call},
        {"RedisModule_FreeCallReply", &free_reply},
        {"RedisModule_ReplyWithLongLong", &reply_integer},
        {NULL, NULL},
    };
    for (const struct function *f = shared; f->name; f++)
        if (get_api(f->name, f->pointer) != OK) return ERR;
    for (const struct function *f = functions; f->name; f++)
        if (get_api(f->name, f->pointer) != OK) return ERR;
    set_attributes(ctx, name, 1, 1);
    return OK;
}
