public class Hot {
    static int leaf(int[] a, int b) { int s = 0; for (int x : a) s = s * 31 + x * b; return s; }
    static int middle(int[] a, int n) { return n == 0 ? leaf(a, 7) : middle(a, n - 1) + leaf(a, n); }
    public static void main(String[] args) {
        int[] data = new int[500];
        java.util.HashMap<Integer, String> map = new java.util.HashMap<>();
        int total = 0;
        long begin = System.nanoTime();
        for (boolean ready = false; System.nanoTime() - begin < 120e9; ) {
            for (int i = 0; i < 100; i++) total += middle(data, 8);
            for (int i = 0; i < 500; i++) map.put(i, Integer.toString(i * total));
            if (!ready && System.nanoTime() - begin > 5e8) {
                System.out.println("ready");
                ready = true;
            }
        }
        System.out.println(total + map.size());
    }
}
