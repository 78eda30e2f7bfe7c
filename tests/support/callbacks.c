// Another module on the same server. It runs a test's commands on keyspace events, whatever notify-keyspace-events is
// set to. The event `fork` means that the server has started a child process.
//
// The arguments of the module are a command, which it runs when it is loaded.
//
// CB.DO event word...  runs the command on each such event. The word % is the event's key. A ! before the command
//                      replicates it
// CB.CLEAR             forgets the commands

#include "redismodule.h"
#include <string.h>
#include <strings.h>

#define RULES 16
#define WORDS 10
// VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION.
#define MOVES_SLOTS (1 << 5)

// An event, and the words of a command.
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
        // The server may keep these strings as values, so make new ones.
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

static void forked(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t kind, void *data) {
    (void)event, (void)data;
    if (kind == REDISMODULE_SUBEVENT_FORK_CHILD_BORN) run(ctx, "fork", NULL);
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
    if (argc) {
        RedisModuleCallReply *reply = RedisModule_Call(ctx, text(argv[0]), "!v", argv + 1, (size_t)(argc - 1));
        if (reply) RedisModule_FreeCallReply(reply);
    }
    return RedisModule_CreateCommand(ctx, "cb.do", cb_do, "", 0, 0, 0) ||
           RedisModule_CreateCommand(ctx, "cb.clear", cb_clear, "", 0, 0, 0) ||
           RedisModule_SubscribeToServerEvent(ctx, RedisModuleEvent_ForkChild, forked) ||
           RedisModule_SubscribeToKeyspaceEvents(ctx, REDISMODULE_NOTIFY_ALL | REDISMODULE_NOTIFY_NEW, happened);
}
