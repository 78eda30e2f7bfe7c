<?php
// Calls whose quantity is no number of tokens, after those of the example. Prints "refused" for each one that is.

require $argv[1];

foreach ([-1, 2 ** 63, 'x'] as $quantity) {
    try {
        echo throttle('user123', 2, 1, 60, 'open', $quantity)[0];
    } catch (Error) {
        echo "refused\n";
    }
}
