use strict;
use warnings;

my @words = map { "word" . ($_ * 7919 % 1000) } 0 .. 2000;
sub fib { my $n = shift; return $n < 2 ? $n : fib($n - 1) + fib($n - 2) }

my $end = time + 4;
while (time < $end) {
    my %count;
    $count{$_}++ for @words;
    my $text = join " ", sort { $count{$a} <=> $count{$b} || $a cmp $b } keys %count;
    my $n = () = $text =~ /(w[a-z]+)(\d+)\s/g;
    $text =~ s/(\d+)/sprintf "%05d", $1/ge;
    fib(12);
}
