// Package builds compares the times that two builds of a program take for the same work, by rounds in which each has
// run once.
//
// Wall and CPU time of a round are a pair: what the machine does for a while, such as the speed of its CPU, is in both.
// The difference is that of the logarithms, so that B takes so many percent more of A's time. Its interval is that of
// Student's t for the mean of the pairs, with a degree of freedom less than rounds.
//
// Whoever looks again and again until an interval is narrow enough sees one that is too narrow. So the interval is
// looked at after 8, 16, 32 … rounds only, with a confidence that leaves out half of what is left of 5 % each time:
// 2.5 %, 1.25 %, …. If rounds end as the interval is narrow enough, it is that of the look; if they end for another
// reason, it has all that is left. So the interval that is printed holds at 95 %, whenever the rounds end, and each of
// two times by itself.
package builds
