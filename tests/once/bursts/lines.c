/* Reads lines such as "200 open", makes that many calls at once, and prints a line of their statuses. One call has this
 * process's lasting connection. Each of several calls has a process, which waits until all processes are there. */

#include <sys/wait.h>
#include <unistd.h>

static int status(redisContext **context, const char *key) {
    return throttle(context, key, 2, 1, 60, 1, strcmp(key, "open") ? CLOSED : OPEN).status;
}

int main(void) {
    int calls;
    char key[8];
    redisContext *lasting = NULL;
    signal(SIGPIPE, SIG_IGN);
    setbuf(stdout, NULL);
    while (scanf("%d %7s", &calls, key) == 2) {
        int start[2], statuses[2], answer;
        if (calls == 1) {
            printf("%d\n", status(&lasting, key));
            continue;
        }
        if (pipe(start) || pipe(statuses)) abort();
        for (int i = 0; i < calls; i++) {
            if (fork()) continue;
            redisContext *context = NULL;
            close(start[1]);
            /* The end of the pipe is the start. */
            if (read(start[0], key + 7, 1)) abort();
            answer = status(&context, key);
            _exit(write(statuses[1], &answer, sizeof answer) != sizeof answer);
        }
        close(start[0]);
        close(start[1]);
        close(statuses[1]);
        while (read(statuses[0], &answer, sizeof answer) == sizeof answer) printf("%d ", answer);
        close(statuses[0]);
        printf("\n");
        while (wait(NULL) > 0) {
        }
    }
}
