import java.io.*;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;

/**
 * Touches args[0] pages of the file args[1], which it makes, each time that a line comes. All of it is called from a
 * loop that has not ended yet: by then it is compiled, and was entered in place of the interpreter's.
 */
public class Loop {
    static int calls, times, total;
    static RandomAccessFile file;
    static MappedByteBuffer few;
    static int leaf(MappedByteBuffer a, int n) { int s = 0; for (int i = 0; i < n; i++) { a.put(i * 4096, (byte) 1); s += i; } return s; }
    static MappedByteBuffer pages(int n) throws IOException {
        file.setLength(0);
        file.setLength(4096L * n);
        return file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 4096L * n);
    }
    static MappedByteBuffer next() throws IOException {
        if (++calls < 200000) return few;
        System.out.println(calls == 200000 ? "ready" : "done");
        if (System.in.read() < 0) System.exit(total == 1 ? 1 : 0);
        return pages(times);
    }
    static void step() throws IOException {
        MappedByteBuffer b = next();
        total += leaf(b, b.capacity() / 4096);
    }
    public static void main(String[] args) throws IOException {
        times = Integer.parseInt(args[0]);
        file = new RandomAccessFile(args[1], "rw");
        few = pages(3);
        while (calls >= 0) step();
    }
}
