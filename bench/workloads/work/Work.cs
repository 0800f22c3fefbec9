using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Text.RegularExpressions;

class Work {
	static int Fib(int n) => n < 2 ? n : Fib(n - 1) + Fib(n - 2);

	static string Sorted(int round) {
		var words = new Dictionary<string, int>();
		for (int i = 0; i < 2000; i++) {
			string word = "word" + (i * 7919 + round) % 1000;
			words.TryGetValue(word, out int n);
			words[word] = n + 1;
		}
		return string.Join(",", words.OrderBy(w => w.Value).ThenBy(w => w.Key, StringComparer.Ordinal).Select(w => w.Key));
	}

	static void Main() {
		var watch = Stopwatch.StartNew();
		long sum = 0;
		for (int round = 1; watch.ElapsedMilliseconds < 4000; round++) {
			sum += Regex.Matches(Sorted(round), @"word(\d+)").Count + Fib(18);
			try {
				throw new InvalidOperationException("unlucky");
			} catch (InvalidOperationException e) {
				sum += e.Message.Length;
			}
		}
		Console.WriteLine(sum);
	}
}
