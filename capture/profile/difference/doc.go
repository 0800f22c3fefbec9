// Package difference compares two recordings, such as one from before a change and one from after it, and
// says which differences are more than chance.
//
// Merge makes one profile of both, whose stacks and functions can be compared one by one; Changes compares
// any rows of it. The difference of two shares lies in an interval by the error of a binomial distribution
// (Newcombe's from Wilson's intervals, which hold for rare functions, too), that of CPU time in one by the
// error of a Poisson distribution. Together all intervals of a list have the Confidence: of lists about
// recordings that do not differ, at most one in twenty has an interval without zero, however long they are.
//
// That holds for samples that are independent of one another. Those of a garbage collection or of a burst of
// requests are not. So the time of each recording is divided into blocks, and the variance of a row is the
// larger one of that of independent samples and what the difference between each block and the next one shows
// (as for systematic samples: Wolter, Introduction to Variance Estimation, chapter 8). A burst that is not
// longer than a block counts as one observation, whatever the number of its samples. What lasts for many
// blocks is taken for a part of the program, and not for chance, so that a program may have phases.
//
// What is the same all through a recording and not in another one is not seen in a single pair: where the
// memory of a process was, how fast the CPU ran, what else ran on the machine. Only several recordings of
// each show that.
package difference
