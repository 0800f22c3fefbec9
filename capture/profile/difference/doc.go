// Package difference compares recordings from before a change with recordings from after it, one of each or
// several, and says which differences are more than chance.
//
// Merge makes one profile of all, whose stacks and functions can be compared one by one; Changes compares
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
// memory of a process was, how fast the CPU ran, what else ran on the machine. So no difference of single
// recordings is called significant. Of several recordings on each side, the variance of a row is also
// estimated from how much these differ, and the interval is that of Student's t with the degrees of freedom of
// Welch, or that of sampling where this goes further. A share is that of all recordings of the side together,
// whose variance is that of a ratio from clusters (Cochran, Sampling Techniques, chapter 6); for recordings of
// equal numbers of samples this is the mean of their shares. An amount is the mean of those of the recordings.
package difference
