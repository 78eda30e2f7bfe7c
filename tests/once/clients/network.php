<?php
// Prints the network that the example limits for each address, after the example's own lines.

require $argv[1];

foreach (array_slice($argv, 2) as $address) {
    echo network($address), "\n";
}
