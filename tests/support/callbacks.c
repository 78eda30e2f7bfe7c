// A module that runs a test's commands on keyspace events, whatever notify-keyspace-events is set to, and on these
// events of the server:
//
// fork    the server has started a child process
// reaped  the child process has ended
// online  a replica has its snapshot
// loaded  the server has loaded a file or a snapshot
//
// The module's arguments are commands, separated by semicolons. The module runs them when it is loaded.
//
// CB.DO event word...  runs the command on each such event. The word % stands for the event's key. A ! before the
//                      command's name makes the server replicate the command
// CB.CLEAR             forgets all commands

#include "redismodule.h"
#include <string.h>
#include <strings.h>

#define RULES 16
#define WORDS 10
// VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION.
#define MOVES_SLOTS (1 << 5)

// A command to run when an event occurs: `words` has the name of the event, and then the words of the command.
static struct rule {
    RedisModuleString *words[WORDS];
    int count;
} rules[RULES];
static int rules_count;

static const char *text(const RedisModuleString *string) {
    return RedisModule_StringPtrLen(string, NULL);
}

static void run(RedisModuleCtx *ctx, const char *event, RedisModuleString *key) {
    for (struct rule *rule = rules; rule < rules + rules_count; rule++) {
        if (strcasecmp(text(rule->words[0]), event)) continue;
        // The server may keep a command's strings as values, so make new strings for each call.
        RedisModuleString *words[WORDS];
        size_t count = 0;
        for (int i = 2; i < rule->count; i++) {
            RedisModuleString *word = strcmp(text(rule->words[i]), "%") ? rule->words[i] : key;
            words[count++] = RedisModule_CreateStringFromString(NULL, word);
        }
        const char *command = text(rule->words[1]);
        int replicated = *command == '!';
        RedisModuleCallReply *reply = RedisModule_Call(ctx, command + replicated, replicated ? "!v" : "v", words, count);
        if (reply) RedisModule_FreeCallReply(reply);
        while (count) RedisModule_FreeString(NULL, words[--count]);
    }
}

static int happened(RedisModuleCtx *ctx, int class, const char *event, RedisModuleString *key) {
    (void)class;
    run(ctx, event, key);
    return REDISMODULE_OK;
}

// The server's events, and the names by which CB.DO knows them.
static const struct {
    uint64_t id, kind;
    const char *name;
} moments[] = {
    {REDISMODULE_EVENT_FORK_CHILD, REDISMODULE_SUBEVENT_FORK_CHILD_BORN, "fork"},
    {REDISMODULE_EVENT_FORK_CHILD, REDISMODULE_SUBEVENT_FORK_CHILD_DIED, "reaped"},
    {REDISMODULE_EVENT_REPLICA_CHANGE, REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE, "online"},
    {REDISMODULE_EVENT_LOADING, REDISMODULE_SUBEVENT_LOADING_ENDED, "loaded"},
};
#define MOMENTS (sizeof moments / sizeof *moments)

static void came(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t kind, void *data) {
    (void)data;
    for (size_t i = 0; i < MOMENTS; i++) {
        if (moments[i].id == event.id && moments[i].kind == kind) run(ctx, moments[i].name, NULL);
    }
}

static int cb_do(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc < 3 || argc > WORDS + 1 || rules_count == RULES) return RedisModule_WrongArity(ctx);
    struct rule *rule = &rules[rules_count++];
    rule->count = argc - 1;
    for (int i = 0; i < rule->count; i++) rule->words[i] = RedisModule_CreateStringFromString(NULL, argv[i + 1]);
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}

static int cb_clear(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    while (rules_count) {
        struct rule *rule = &rules[--rules_count];
        while (rule->count) RedisModule_FreeString(NULL, rule->words[--rule->count]);
    }
    return RedisModule_ReplyWithSimpleString(ctx, "OK");
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (RedisModule_Init(ctx, "callbacks", 1, REDISMODULE_APIVER_1)) return REDISMODULE_ERR;
    // Valkey 9 moves slots only if every module has set this option.
    void *of_valkey;
    if (!RedisModule_GetApi("ValkeyModule_SetModuleOptions", &of_valkey)) RedisModule_SetModuleOptions(ctx, MOVES_SLOTS);
    if (RedisModule_CreateCommand(ctx, "cb.do", cb_do, "", 0, 0, 0) ||
        RedisModule_CreateCommand(ctx, "cb.clear", cb_clear, "", 0, 0, 0) ||
        RedisModule_SubscribeToKeyspaceEvents(ctx, REDISMODULE_NOTIFY_ALL | REDISMODULE_NOTIFY_NEW, happened))
        return REDISMODULE_ERR;
    for (size_t i = 0; i < MOMENTS; i++) {
        RedisModuleEvent event = {moments[i].id, 1};
        // Two names share the fork event. The second subscription to an event replaces the first, which is harmless
        // here.
        if (RedisModule_SubscribeToServerEvent(ctx, event, came)) return REDISMODULE_ERR;
    }
    for (int first = 0, end; first < argc; first = end + 1) {
        for (end = first; end < argc && strcmp(text(argv[end]), ";");) end++;
        size_t count = (size_t)(end - first - 1);
        RedisModuleCallReply *reply = RedisModule_Call(ctx, text(argv[first]), "!v", argv + first + 1, count);
        if (reply) RedisModule_FreeCallReply(reply);
    }
    return REDISMODULE_OK;
}
