end <- proc.time()[["elapsed"]] + 4
words <- paste0("word", (seq_len(2000) * 7919) %% 1000)
fib <- function(n) if (n < 2) n else fib(n - 1) + fib(n - 2)
while (proc.time()[["elapsed"]] < end) {
  m <- matrix(runif(40000), 200)
  s <- solve(m) %*% m
  f <- lm(y ~ x, data.frame(x = runif(500), y = runif(500)))
  t <- table(sub("word([0-9])", "\\1", words))
  o <- order(words, decreasing = TRUE)
  v <- vapply(split(seq_along(words), nchar(words)), sum, 0)
  fib(14)
}
