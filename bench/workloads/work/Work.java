import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Work {
    static int fib(int n) {
        return n < 2 ? n : fib(n - 1) + fib(n - 2);
    }

    public static void main(String[] args) {
        List<String> words = new ArrayList<>();
        for (int i = 0; i < 2000; i++) {
            words.add("word" + i * 7919L % 1000);
        }
        Pattern word = Pattern.compile("(w[a-z]+)(\\d+)");
        long total = 0;
        long end = System.nanoTime() + 3_000_000_000L;
        while (System.nanoTime() < end) {
            String text = String.join(" ", words);
            TreeMap<String, Integer> count = new TreeMap<>();
            for (Matcher m = word.matcher(text); m.find();) {
                count.merge(m.group(2), 1, Integer::sum);
            }
            List<String> sorted = new ArrayList<>(words);
            sorted.sort((a, b) -> a.length() != b.length() ? a.length() - b.length() : b.compareTo(a));
            total += count.size() + sorted.get(0).hashCode() + fib(18);
            total += words.parallelStream().mapToInt(String::hashCode).sum();
        }
        System.out.println(total);
    }
}
