/* Prints the answer to a quantity below zero. */

int main(void) { printf("%d", throttle(NULL, "user123", 2, 1, 60, -1, OPEN).status); }
