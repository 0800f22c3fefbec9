<?php
function fib(int $n): int { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }

function sorted(int $round): string {
    $words = array_map(fn($i) => "word" . ($i * 7919 + $round) % 1000, range(1, 2000));
    usort($words, fn($a, $b) => strlen($a) <=> strlen($b) ?: strcmp($a, $b));
    return implode(",", $words);
}

$end = microtime(true) + 4;
$sum = 0;
for ($round = 1; microtime(true) < $end; $round++) {
    $text = json_encode(json_decode(json_encode(explode(",", sorted($round)))));
    $sum += preg_match_all('/word(\d+)/', $text) + crc32(serialize(unserialize(serialize([$text]))));
    preg_replace_callback('/\d/', fn($m) => $m[0] + 1, $text);
    try { throw new RuntimeException("unlucky"); } catch (RuntimeException $e) { $sum += strlen($e->getMessage()); }
    $sum += fib(16);
}
echo $sum, "\n";
