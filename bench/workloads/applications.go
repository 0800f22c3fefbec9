package workloads

import _ "embed"

var (
	//go:embed work/work.html
	workHTML string
	//go:embed work/render.py
	workRender string
	//go:embed work/haproxy.cfg
	workHAProxy string
	//go:embed work/frames.py
	workFrames string
	//go:embed work/blas.c
	workBLAS string
	//go:embed work/work.R
	workR string
	//go:embed work/work.m
	workOctave string
	//go:embed work/work.adb
	workAda string
	//go:embed work/work.pas
	workPascal string
	//go:embed work/work.ml
	workOCaml string
	//go:embed work/work.hs
	workHaskell string
	//go:embed work/work.lua
	workLua string
	//go:embed work/work.erl
	workErlang string
	//go:embed work/Work.cs
	workCSharp string
	//go:embed work/work.php
	workPHP string
)

// applications are large programs, servers and libraries that bring assembly of their own.
var applications = []Program{
	{
		Name:    "chromium",
		needs:   []need{{"/usr/lib/chromium/chromium-headless-shell", "chromium-headless-shell"}},
		version: "dpkg-query -W -f '${Version}' chromium-headless-shell",
		prepare: file("work.html", workHTML),
		run: `$RECORD /usr/lib/chromium/chromium-headless-shell --no-sandbox --disable-gpu ` +
			`--user-data-dir="$PWD/profile" --dump-dom "file://$PWD/work.html" >/dev/null`,
	},
	{
		Name: "firefox", needs: []need{{"/usr/lib/firefox-esr/firefox-esr", "firefox-esr"}},
		version: "dpkg-query -W -f '${Version}' firefox-esr",
		prepare: file("work.html", workHTML) + "mkdir profile home",
		run: `HOME=$PWD/home $RECORD /usr/lib/firefox-esr/firefox-esr --headless --no-remote ` +
			`--profile "$PWD/profile" --screenshot "$PWD/work.png" "file://$PWD/work.html" >/dev/null`,
	},
	{
		Name: "libreoffice",
		needs: []need{{"/usr/lib/libreoffice/program/soffice.bin", "libreoffice-core-nogui"},
			{"/usr/lib/libreoffice/program/libswlo.so", "libreoffice-writer-nogui"}, {"python3", "python3"}},
		version: "dpkg-query -W -f '${Version}' libreoffice-core-nogui | sed s/.*://",
		prepare: file("work.html", workHTML) + `python3 - >work.fodt <<'END'
print('<?xml version="1.0" encoding="UTF-8"?><office:document office:version="1.2" '
      'office:mimetype="application/vnd.oasis.opendocument.text" '
      'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
      'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:text>')
for i in range(3000):
    words = ' '.join(f'word{(i * k * 7919) % 1000}' for k in range(1, 60))
    print(f'<text:h text:outline-level="1">{i}</text:h><text:p>{words}</text:p>' if i % 10 == 0 else
          f'<text:p>{words}</text:p>')
print('</office:text></office:body></office:document>')
END
mkdir home
# The first start makes the profile, and then asks to be started again.
HOME=$PWD/home /usr/lib/libreoffice/program/soffice.bin --headless \
	"-env:UserInstallation=file://$PWD/profile" --terminate_after_init >/dev/null 2>&1 || true`,
		run: `HOME=$PWD/home $RECORD /usr/lib/libreoffice/program/soffice.bin --headless ` +
			`"-env:UserInstallation=file://$PWD/profile" --convert-to pdf --outdir "$PWD" work.fodt ` +
			`>/dev/null`,
	},
	{
		Name: "blender", needs: []need{{"blender", "blender"}}, version: "blender --version",
		prepare: file("render.py", workRender) + "mkdir home",
		run: `HOME=$PWD/home $RECORD blender --background -noaudio --threads 2 --factory-startup ` +
			`--python render.py >/dev/null`,
	},
	{
		Name: "mariadb", needs: []need{{"mariadbd", "mariadb-server"}, {"mariadb-slap", "mariadb-client"},
			{"mariadb-install-db", "mariadb-server"}},
		version: "mariadbd --version | sed 's/.*Ver //'",
		prepare: `mkdir data; chown mysql: data
mariadb-install-db --no-defaults --user=mysql --datadir="$PWD/data" --tmpdir="$PWD/data" --skip-test-db \
	--auth-root-authentication-method=normal >/dev/null`,
		serve: `exec "$(command -v mariadbd)" --no-defaults --user=mysql --datadir="$PWD/data" ` +
			`--skip-networking --tmpdir="$PWD/data" --socket="$PWD/data/socket" --pid-file="$PWD/data/pid"`,
		run: `sleep 2
$RECORD mariadb-slap --no-defaults --socket="$PWD/data/socket" --user=root --auto-generate-sql \
	--auto-generate-sql-load-type=mixed --concurrency=4 --number-of-queries=6000 --number-char-cols=5 \
	--number-int-cols=3 >/dev/null`,
	},
	{
		Name: "memcached", needs: []need{{"memcached", "memcached"}, {"memcslap", "libmemcached-tools"}},
		version: "memcached --version",
		serve:   "exec memcached -u nobody -l 127.0.0.1 -p 18446 -U 0 -t 2",
		run: `$RECORD sh -ec 'for i in 1 2 3; do
memcslap --servers=127.0.0.1:18446 --concurrency=8 --execute-number=3000 --test=set >/dev/null
memcslap --servers=127.0.0.1:18446 --concurrency=8 --execute-number=3000 --test=get >/dev/null
done'`,
	},
	{
		Name: "haproxy", needs: []need{{"haproxy", "haproxy"}, {"openssl", "openssl"},
			{"ab", "apache2-utils"}},
		version: "haproxy -v",
		prepare: file("haproxy.cfg", workHAProxy) + `openssl req -x509 -newkey rsa:2048 -nodes \
	-keyout key -out cert -days 2 -subj /CN=localhost 2>/dev/null
cat cert key >pem`,
		serve: `exec haproxy -db -q -f haproxy.cfg`,
		run: `$RECORD sh -ec '
ab -q -n 1200 -c 4 https://127.0.0.1:18444/small1 >/dev/null
ab -q -k -n 20000 -c 8 https://127.0.0.1:18444/foo >/dev/null
ab -q -k -n 20000 -c 8 -H "Accept-Encoding: gzip" https://127.0.0.1:18444/bar >/dev/null'`,
	},
	{
		Name: "x265", needs: []need{{"x265", "x265"}, {"python3", "python3"}},
		version: "x265 --version 2>&1 | sed 's/.*version //'",
		prepare: file("frames.py", workFrames) + "python3 frames.py 40 work.y4m",
		run:     "$RECORD x265 --log-level error --preset medium --input work.y4m -o work.hevc 2>/dev/null",
	},
	{
		Name: "rav1e", needs: []need{{"rav1e", "rav1e"}, {"python3", "python3"}},
		version: "rav1e --version | sed -n 's/rav1e \\([^ ]*\\).*/\\1/p'",
		prepare: file("frames.py", workFrames) + "python3 frames.py 8 work.y4m",
		run:     "$RECORD rav1e -q -s 6 -y -o work.ivf work.y4m",
	},
	{
		Name: "aomenc", needs: []need{{"aomenc", "aom-tools"}, {"python3", "python3"}},
		version: "dpkg-query -W -f '${Version}' aom-tools",
		prepare: file("frames.py", workFrames) + "python3 frames.py 24 work.y4m",
		run:     "$RECORD aomenc --quiet --cpu-used=6 --ivf -o work.ivf work.y4m",
	},
	{
		Name: "SVT-AV1", needs: []need{{"SvtAv1EncApp", "svt-av1"}, {"python3", "python3"}},
		version: "dpkg-query -W -f '${Version}' svt-av1",
		prepare: file("frames.py", workFrames) + "python3 frames.py 300 work.y4m",
		run:     "$RECORD SvtAv1EncApp --preset 8 -i work.y4m -b work.ivf >/dev/null 2>&1",
	},
	{
		Name: "imagemagick", needs: []need{{"/usr/bin/convert-im6.q16", "imagemagick"}},
		version: "convert-im6.q16 --version | sed -n 's/Version: ImageMagick \\([^ ]*\\) .*/\\1/p'",
		run: "$RECORD convert-im6.q16 -seed 1 -size 1200x900 plasma:fractal -blur 0x6 -resize 160% -unsharp 0x2 " +
			"-swirl 40 -quantize Lab -colors 200 out.png",
	},
	{
		Name: "dav1d", needs: []need{{"dav1d", "dav1d"}, {"SvtAv1EncApp", "svt-av1"}, {"python3", "python3"}},
		version: "dav1d --version 2>&1",
		prepare: file("frames.py", workFrames) + `python3 frames.py 200 work.y4m
SvtAv1EncApp --preset 10 -i work.y4m -b work.ivf >/dev/null 2>&1; rm work.y4m`,
		run: "$RECORD sh -ec 'for i in 1 2 3 4; do dav1d -q -i work.ivf --muxer null -o /dev/null; done'",
	},
	{
		Name: "OpenBLAS", needs: []need{{"gcc", "gcc"},
			{"/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so", "libopenblas-pthread-dev"}},
		version: "dpkg-query -W -f '${Version}' libopenblas0-pthread",
		prepare: file("blas.c", workBLAS) +
			"gcc -O2 -o blas blas.c /usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so",
		run: "$RECORD ./blas",
	},
}

// runtimes are languages whose compiler or interpreter is not in the list above.
var runtimes = []Program{
	{
		Name: "R", needs: []need{{"/usr/lib/R/bin/exec/R", "r-base-core"}}, version: "R --version",
		prepare: file("work.R", workR),
		run: "OPENBLAS_NUM_THREADS=1 R_HOME=/usr/lib/R LD_LIBRARY_PATH=/usr/lib/R/lib $RECORD " +
			"/usr/lib/R/bin/exec/R --vanilla --no-echo -f work.R >/dev/null",
	},
	{
		Name: "octave", needs: []need{{"octave-cli", "octave"}}, version: "octave-cli --version",
		prepare: file("work.m", workOctave) + "mkdir home",
		run:     "OPENBLAS_NUM_THREADS=1 HOME=$PWD/home $RECORD octave-cli --no-gui -qf work.m",
	},
	{
		Name: "gnat", needs: []need{{"gnatmake", "gnat"}}, version: "gnatmake --version",
		prepare: file("work.adb", workAda) + "gnatmake -q -O2 work.adb",
		run:     "$RECORD ./work >/dev/null",
	},
	{
		Name:    "fpc",
		needs:   []need{{"fpc", "fp-compiler"}, {"/usr/lib/x86_64-linux-gnu/fpc", "fp-units-base"}},
		version: "fpc -iV", prepare: file("work.pas", workPascal) + "fpc -O2 -l- -v0 work.pas >/dev/null",
		run: "$RECORD ./work >/dev/null",
	},
	{
		Name: "ocaml", needs: []need{{"ocamlopt", "ocaml-nox"}}, version: "ocamlopt -version",
		prepare: file("work.ml", workOCaml) + "ocamlopt -O3 -I +unix unix.cmxa -o work work.ml 2>/dev/null",
		run:     "$RECORD ./work >/dev/null",
	},
	{
		Name: "haskell", needs: []need{{"ghc", "ghc"}}, version: "ghc --version",
		prepare: file("work.hs", workHaskell) + "ghc -O -v0 -o work work.hs",
		run:     "$RECORD ./work >/dev/null",
	},
	{
		Name: "luajit", needs: []need{{"luajit", "luajit"}}, version: "luajit -v",
		prepare: file("work.lua", workLua),
		run:     "$RECORD luajit work.lua >/dev/null",
	},
	{
		Name: "pypy", needs: []need{{"pypy3", "pypy3"}}, version: "dpkg-query -W -f '${Version}' pypy3",
		prepare: file("work.py", workPython),
		run:     "$RECORD pypy3 work.py",
	},
	{
		Name: "erlang", needs: []need{{"erlc", "erlang-base"}},
		version: "dpkg-query -W -f '${Version}' erlang-base | sed s/.*://",
		prepare: file("work.erl", workErlang) + "erlc work.erl; mkdir home",
		run: `BINDIR=$(echo /usr/lib/erlang/erts-*/bin); export BINDIR
HOME=$PWD/home ROOTDIR=/usr/lib/erlang EMU=beam PROGNAME=erl $RECORD "$BINDIR/erlexec" +S 2 -noshell \
	-s work main -s init stop >/dev/null`,
	},
	{
		Name: "mono", needs: []need{{"mono", "mono-runtime"}, {"mcs", "mono-mcs"}}, version: "mono --version",
		prepare: file("Work.cs", workCSharp) + "mcs -optimize+ Work.cs; mkdir home",
		run:     "HOME=$PWD/home $RECORD mono Work.exe >/dev/null",
	},
	{
		Name: "php", needs: []need{{"php", "php-cli"}}, version: "php --version",
		prepare: file("work.php", workPHP),
		run: "$RECORD php -d opcache.enable_cli=1 -d opcache.jit_buffer_size=64M -d opcache.jit=tracing " +
			"work.php >/dev/null",
	},
}
