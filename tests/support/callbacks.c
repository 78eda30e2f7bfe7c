// Another module on the same server. It runs a test's commands on keyspace events, and counts the events, whatever
// notify-keyspace-events is set to. The event `fork` means that the server has started a child process. Its commands are
// replicated.
//
// The arguments of the module are a command, which it runs when it is loaded.
//
// CB.DO event word...  runs the command on each such event. The word % is the event's key. A ! before the command's name
//                      replicates the command
// CB.COUNT event       replies with the number of these events since CB.CLEAR
// CB.CLEAR             forgets the commands and the counts

#include "loader.h"
#include <string.h>
#include <strings.h>

// Every event but "loaded" (1 << 12): commands cannot run while the server loads.
#define EVENTS (0x7ffc & ~(1 << 12))
// VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION.
#define MOVES_SLOTS (1 << 5)
// RedisModuleEvent_ForkChild and its first kind.
#define FORK_CHILD 13
#define BORN 0
#define RULES 16
#define WORDS 8

static int (*subscribe)(context *, int, int (*)(context *, int, const char *, string *));
// RedisModuleEvent, which is passed by value.
typedef struct {
    unsigned long id, version;
} server_event;
static int (*subscribe_to_server)(context *, server_event, void (*)(context *, server_event, unsigned long, void *));
static string *(*create_string)(context *, const char *, size_t);
static void (*free_string)(context *, string *);
static const char *(*text_of)(const string *, size_t *);

static struct {
    char event[32];
    char words[WORDS][600];
    int count;
} rules[RULES];
static int rules_count;
static struct {
    char event[32];
    long long count;
} counts[64];
static int counts_count;
static int busy;

static void keep(char *to, size_t size, const string *from) {
    size_t length;
    const char *text = text_of(from, &length);
    if (length >= size) length = size - 1;
    memcpy(to, text, length);
    to[length] = 0;
}

static void run_rules(context *ctx, const char *event, string *name, const char *format) {
    int i = 0;
    while (i < counts_count && strcasecmp(counts[i].event, event)) i++;
    if (i == counts_count && i < 64) {
        strncpy(counts[i].event, event, sizeof counts[i].event - 1);
        counts_count++;
    }
    if (i < 64) counts[i].count++;
    // Events that these commands cause run no commands.
    if (busy) return;
    busy = 1;
    for (i = 0; i < rules_count; i++) {
        if (strcasecmp(rules[i].event, event)) continue;
        string *words[WORDS];
        int count = rules[i].count;
        for (int j = 1; j < count; j++) {
            const char *word = rules[i].words[j];
            words[j] = strcmp(word, "%") ? create_string(NULL, word, strlen(word)) : name;
        }
        const char *command = rules[i].words[0];
        int replicated = command[0] == '!';
        reply *answer = call(ctx, command + replicated, replicated ? "!v" : format, words + 1, (size_t)(count - 1));
        if (answer) free_reply(answer);
        for (int j = 1; j < count; j++)
            if (words[j] != name) free_string(NULL, words[j]);
    }
    busy = 0;
}

static int happened(context *ctx, int class, const char *event, string *name) {
    (void)class;
    run_rules(ctx, event, name, "v");
    return OK;
}

static void forked(context *ctx, server_event event, unsigned long kind, void *data) {
    (void)event, (void)data;
    if (kind == BORN) run_rules(ctx, "fork", NULL, "!v");
}

static int cb_do(context *ctx, string **argv, int argc) {
    if (argc < 3 || argc - 2 > WORDS || rules_count == RULES) return ERR;
    keep(rules[rules_count].event, sizeof rules[0].event, argv[1]);
    for (int j = 2; j < argc; j++) keep(rules[rules_count].words[j - 2], sizeof rules[0].words[0], argv[j]);
    rules[rules_count].count = argc - 2;
    return reply_integer(ctx, ++rules_count);
}

static int cb_count(context *ctx, string **argv, int argc) {
    char event[32];
    long long count = 0;
    if (argc != 2) return ERR;
    keep(event, sizeof event, argv[1]);
    for (int i = 0; i < counts_count; i++)
        if (!strcasecmp(counts[i].event, event)) count = counts[i].count;
    return reply_integer(ctx, count);
}

static int cb_clear(context *ctx, string **argv, int argc) {
    (void)argv, (void)argc;
    rules_count = 0;
    memset(counts, 0, sizeof counts);
    counts_count = 0;
    return reply_integer(ctx, 0);
}

int RedisModule_OnLoad(context *ctx, string **argv, int argc) {
    const struct function functions[] = {
        {"RedisModule_SubscribeToKeyspaceEvents", &subscribe},
        {"RedisModule_SubscribeToServerEvent", &subscribe_to_server},
        {"RedisModule_CreateString", &create_string},
        {"RedisModule_FreeString", &free_string},
        {"RedisModule_StringPtrLen", &text_of},
        {NULL, NULL},
    };
    if (begin(ctx, "callbacks", functions) != OK) return ERR;
    // Valkey 9 moves slots only if every module has set this option.
    void (*set_options)(context *, int);
    if (get_api("ValkeyModule_SetModuleOptions", &set_options) == OK) set_options(ctx, MOVES_SLOTS);
    if (create_command(ctx, "cb.do", cb_do, "", 0, 0, 0) != OK ||
        create_command(ctx, "cb.count", cb_count, "", 0, 0, 0) != OK ||
        create_command(ctx, "cb.clear", cb_clear, "", 0, 0, 0) != OK)
        return ERR;
    if (argc) {
        reply *answer = call(ctx, text_of(argv[0], NULL), "!v", argv + 1, (size_t)(argc - 1));
        if (answer) free_reply(answer);
    }
    if (subscribe_to_server(ctx, (server_event){FORK_CHILD, 1}, forked) != OK) return ERR;
    return subscribe(ctx, EVENTS, happened);
}
