package workloads

import (
	_ "embed"
	"slices"
)

// The workloads, as files with the syntax of what they are for.
var (
	//go:embed work/work.py
	workPython string
	//go:embed work/work.pl
	workPerl string
	//go:embed work/work.rb
	workRuby string
	//go:embed work/work.sql
	workSQL string
	//go:embed work/work.cc
	workCXX string
	//go:embed work/work.rs
	workRust string
	//go:embed work/work.js
	workJS string
	//go:embed work/Work.java
	workJava string
	//go:embed work/work.c
	workC string
	//go:embed work/configure
	workConfigure string
	//go:embed work/maps.c
	workMaps string
)

// file is a script that writes a file.
func file(name, text string) string {
	return "cat >" + name + " <<'END OF FILE'\n" + text + "END OF FILE\n"
}

// Find is the program of that name, nil if there is none.
func Find(name string) *Program {
	for _, list := range [][]Program{Programs, Loads, Breaking} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// Loads cause many records other than samples in a recording of the whole system. They end when
// they are killed.
var Loads = []Program{
	{
		Name: "50 new processes a second", needs: []need{{"gcc", "gcc"}},
		prepare: `for name in storm burn; do gcc -O2 -pthread -o $name "$ROOT/testdata/programs/src/$name.c"; done`,
		run:     "./storm 1000 50 ./burn",
	},
	{
		Name: "500 executable mappings a second", needs: []need{{"gcc", "gcc"}},
		prepare: file("maps.c", workMaps) + "gcc -O2 -o maps maps.c",
		run:     "./maps 500 $(ls /usr/lib/x86_64-linux-gnu/lib*.so.* | head -n 40)",
	},
	{
		Name: "500 executable mappings a second, of many files", needs: []need{{"gcc", "gcc"}},
		prepare: file("maps.c", workMaps) + "gcc -O2 -o maps maps.c",
		run:     "./maps 500 /usr/lib/x86_64-linux-gnu/lib*.so.*",
	},
}

// Programs are the workloads, in the order of the tables.
var Programs = slices.Concat(distribution, applications, runtimes)

// distribution are programs that most distributions install.
var distribution = []Program{
	{
		Name: "python3", needs: []need{{"python3", "python3"}}, version: "python3 --version",
		prepare: file("work.py", workPython),
		run:     "$RECORD /usr/bin/python3 work.py",
	},
	{
		Name: "perl", needs: []need{{"perl", "perl"}}, version: "perl -e 'print substr($^V, 1)'",
		prepare: file("work.pl", workPerl),
		run:     "$RECORD perl work.pl",
	},
	{
		Name: "ruby", needs: []need{{"ruby", "ruby"}}, version: "ruby --version",
		prepare: file("work.rb", workRuby),
		run:     "$RECORD ruby work.rb",
	},
	{
		Name: "git log", needs: []need{{"git", "git"}}, version: "git --version",
		prepare: `git clone -q "$ROOT" repository; cd repository
for i in $(seq 30); do
git ls-files '*.go' | xargs sed -i "$((i * 3))~20a // line $i"
git -c gc.auto=0 -c user.name=nobody -c user.email=nobody@localhost commit -q -a -m "lines $i"
done`,
		run: "$RECORD git -C repository log --stat -p -C --color-words >/dev/null",
	},
	{
		Name: "sqlite3", needs: []need{{"sqlite3", "sqlite3"}}, version: "sqlite3 --version",
		prepare: file("work.sql", workSQL),
		run:     "$RECORD sqlite3 work.db <work.sql >/dev/null",
	},
	{
		Name: "postgres", needs: []need{{"postgres", "postgresql"}, {"pgbench", "postgresql-contrib"},
			{"setpriv", ""}},
		version: "postgres --version",
		prepare: `mkdir data; chown postgres: data
as='setpriv --reuid=postgres --regid=postgres --clear-groups'
$as initdb -D "$PWD/data" -A trust >/dev/null
printf "listen_addresses = ''\nunix_socket_directories = '$PWD/data'\nfsync = off\n" >>data/postgresql.conf
$as pg_ctl -w -D "$PWD/data" -l "$PWD/data/log" start >/dev/null
pgbench -q -i -s 5 -h "$PWD/data" -U postgres postgres
$as pg_ctl -w -D "$PWD/data" stop >/dev/null`,
		serve: `exec setpriv --reuid=postgres --regid=postgres --clear-groups "$(command -v postgres)" ` +
			`-D "$PWD/data"`,
		run: `$RECORD pgbench -c 4 -T 5 -h "$PWD/data" -U postgres postgres >/dev/null`,
	},
	{
		Name: "redis", needs: []need{{"redis-server", "redis-server"}, {"redis-benchmark", "redis-tools"}},
		version: "redis-server --version | sed s/.*v=//",
		serve:   `exec redis-server --port 0 --unixsocket "$PWD/socket" --save "" --dir "$PWD"`,
		run: `$RECORD sh -ec '
redis-benchmark -s socket -q -n 150000 -P 16 \
	-t set,get,incr,lpush,lpop,sadd,hset,zadd,lrange_100,mset >/dev/null
redis-benchmark -s socket -q -n 20000 -P 16 \
	eval "local s = 0 for i = 1, 20 do s = s + i end return redis.call(\"set\", \"k\", s)" 0 >/dev/null'`,
	},
	{
		Name: "nginx (TLS)", needs: []need{{"nginx", "nginx-light"}, {"openssl", "openssl"},
			{"ab", "apache2-utils"}},
		version: "nginx -v 2>&1",
		prepare: `openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 \
	-subj /CN=localhost 2>/dev/null
mkdir www; head -c 1000000 /dev/urandom >www/large; echo hello >www/small
cat >nginx.conf <<END
daemon off; user root; worker_processes 1; pid $PWD/pid; error_log $PWD/error.log;
events { }
http {
  access_log off; gzip on; gzip_types *;
  client_body_temp_path $PWD; proxy_temp_path $PWD; fastcgi_temp_path $PWD;
  uwsgi_temp_path $PWD; scgi_temp_path $PWD;
  server { listen 127.0.0.1:18443 ssl; ssl_certificate $PWD/cert.pem;
    ssl_certificate_key $PWD/key.pem; root $PWD/www; }
}
END`,
		serve: `exec nginx -p "$PWD" -c "$PWD/nginx.conf"`,
		run: `$RECORD sh -ec '
ab -q -n 1500 -c 4 https://127.0.0.1:18443/small >/dev/null
ab -q -k -n 1000 -c 4 https://127.0.0.1:18443/large >/dev/null
ab -q -k -n 60 -c 4 -H "Accept-Encoding: gzip" https://127.0.0.1:18443/large >/dev/null'`,
	},
	{
		Name: "cc1plus", needs: []need{{"g++", "g++"}}, version: "echo $(g++ -dumpfullversion)",
		prepare: file("work.cc", workCXX) + "g++ -std=c++17 -E -o work.ii work.cc",
		run: `$RECORD "$(g++ -print-prog-name=cc1plus)" -fpreprocessed work.ii -quiet -std=c++17 -O2 ` +
			`-o /dev/null`,
	},
	{
		Name: "clang", needs: []need{{"clang++", "clang"}, {"g++", "g++"}}, version: "clang --version",
		prepare: file("work.cc", workCXX),
		run:     "$RECORD clang++ -std=c++17 -O2 -c -o work.o work.cc",
	},
	{
		Name: "rustc", needs: []need{{"rustc", ""}}, version: "rustc --version",
		prepare: file("work.rs", workRust),
		run:     "$RECORD rustc --edition 2021 -O -o work work.rs",
	},
	{
		Name: "go build", needs: []need{{"go", ""}}, version: "go version",
		prepare: "go mod init program 2>/dev/null; GOCACHE=$PWD/cache GOFLAGS= go build regexp fmt",
		run:     "GOCACHE=$PWD/cache GOFLAGS= $RECORD go build encoding/json go/parser math/big",
	},
	{
		Name: "node", needs: []need{{"node", "nodejs"}}, version: "node --version",
		prepare: file("work.js", workJS),
		run:     "$RECORD node work.js",
	},
	{
		Name: "java", needs: []need{{"java", "default-jdk-headless"}, {"javac", "default-jdk-headless"}},
		version: "java --version",
		prepare: file("Work.java", workJava) + "javac Work.java",
		run:     "$RECORD java -XX:+PreserveFramePointer -Xmx256m Work",
	},
	{
		Name: "ffmpeg (libx264)", needs: []need{{"ffmpeg", "ffmpeg"}}, version: "ffmpeg -version",
		run: "$RECORD ffmpeg -nostdin -loglevel error -f lavfi -i testsrc2=size=854x480:rate=30 -t 12 " +
			"-c:v libx264 -f null -",
	},
	{
		Name: "openssl speed", needs: []need{{"openssl", "openssl"}}, version: "openssl version",
		run: "$RECORD openssl speed -seconds 1 -bytes 16384 sha256 aes-128-cbc rsa2048 >/dev/null",
	},
	{
		Name: "busybox-static", needs: []need{{"busybox", "busybox-static"}}, version: "busybox 2>&1",
		run: `$RECORD busybox sh -ec 'for i in 1 2 3 4 5 6; do
busybox seq 150000 | busybox sort -r | busybox gzip | busybox md5sum
busybox seq 150000 | busybox sed "s/1[0-5]*/x&y/g" | busybox awk "{ n += length(\$0) } END { print n }"
done' >/dev/null`,
	},
	{
		Name: "musl static-pie", needs: []need{{"musl-gcc", "musl-tools"}, {"gcc", "gcc"}},
		version: "dpkg-query -W -f '${Version}' musl",
		prepare: file("work.c", workC) +
			`for dir in /usr/lib/x86_64-linux-musl /usr/lib/musl/lib /usr/local/musl/lib; do
if [ -e $dir/rcrt1.o ]; then lib=$dir; fi
done
musl-gcc -O2 -fPIE -c work.c
# musl-gcc itself does not know of -static-pie.
gcc -static-pie -nostdlib -o work $lib/rcrt1.o $lib/crti.o work.o $lib/libc.a -lgcc $lib/crtn.o`,
		run: "$RECORD ./work",
	},
	{
		Name: "configure storm", needs: []need{{"gcc", "gcc"}}, version: "echo $(gcc -dumpfullversion)",
		// The programs stay: these samples are unwound after all is over.
		prepare: file("configure", workConfigure),
		run:     "$RECORD sh configure >/dev/null",
	},
}
