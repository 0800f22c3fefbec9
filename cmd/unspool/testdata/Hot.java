import java.io.*;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;

/** Touches args[0] pages of the file args[1], which it makes, each time that a line comes. */
public class Hot {
    static int leaf(MappedByteBuffer a, int n) { int s = 0; for (int i = 0; i < n; i++) { a.put(i * 4096, (byte) 1); s += i; } return s; }
    static int middle(MappedByteBuffer a, int n, int deep) { return deep == 0 ? leaf(a, n) : middle(a, n, deep - 1) + 1; }
    static MappedByteBuffer pages(RandomAccessFile f, int n) throws IOException {
        f.setLength(0);
        f.setLength(4096L * n);
        return f.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 4096L * n);
    }
    public static void main(String[] args) throws IOException {
        int times = Integer.parseInt(args[0]), total = 0;
        RandomAccessFile f = new RandomAccessFile(args[1], "rw");
        MappedByteBuffer few = pages(f, 3);
        for (int i = 0; i < 100000; i++) total += middle(few, 3, 8);
        System.out.println("ready");
        for (int c; (c = System.in.read()) >= 0; ) {
            total += middle(pages(f, times), times, 8);
            System.out.println("done");
        }
        System.err.print(total == 1 ? "" : "");
    }
}
