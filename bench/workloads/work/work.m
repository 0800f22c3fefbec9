1; # a script, and no function
function r = fib (n)
  if (n < 2)
    r = n;
  else
    r = fib (n - 1) + fib (n - 2);
  end
end
t = tic ();
while (toc (t) < 4)
  m = rand (200);
  s = m \ rand (200);
  e = eig (m);
  c = arrayfun (@(i) sprintf ("word%d", mod (i * 7919, 1000)), 1:300, "UniformOutput", false);
  u = sort (c);
  k = regexprep (u, "word(\\d)", "$1-");
  f = abs (fft (rand (1, 4096)));
  fib (10);
end
