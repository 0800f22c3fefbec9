package commandlines

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"unspool/capture/perfdata"
)

// In a line of the table, arguments are separated by a |.
var commandLineCases = []struct{ line, want string }{
	// Nothing to hide.
	{"cc1plus|-quiet|-O2|dfa.cc|-o|/tmp/x.s", "cc1plus -quiet -O2 dfa.cc -o /tmp/x.s"},
	{"postgres: writer", "postgres: writer"},
	{"sshd-auth: root [preauth]", "sshd-auth: root [preauth]"},
	{"nginx: master process /usr/sbin/nginx -g daemon on;", "nginx: master process /usr/sbin/nginx -g daemon on;"},
	{"java|-Xmx1g|-cp|a:b|Main", "java -Xmx1g -cp a:b Main"},
	{"ssh|-p|22|user@host", "ssh -p 22 user@host"},
	{"curl|https://host:8080/a@b?c=d", "curl https://host:8080/a@b?c=d"},
	{"git|clone|git@host:path.git", "git clone git@host:path.git"},
	{"docker|run|image@sha256:00ff", "docker run image@sha256:00ff"},
	{"serve|--max-tokens|4096|--tokenizer|gpt2", "serve --max-tokens 4096 --tokenizer gpt2"},
	{"run|--password-file|/etc/pw|--keyboard|us", "run --password-file /etc/pw --keyboard us"},
	{"run|--no-password|next", "run --no-password next"},
	{"c++filt|std::key::make", "c++filt std::key::make"},
	{"", ""},
	{"||", ""},
	// What names say.
	{"x|--password=hunter2", "x --password=***"},
	{"x|--password=two words|-v", "x --password=*** -v"},
	{"x|--password|hunter2|-v", "x --password *** -v"},
	{"x|--password|two words|-v", "x --password *** -v"},
	{"x|--passwd|-hunter2|-v", "x --passwd *** -v"},
	{"x|--auth|--password|hunter2", "x --auth --password ***"},
	{"x|-pwd|hunter2", "x -pwd ***"},
	{"x|--password", "x --password"},
	{"x|--password=", "x --password="},
	{"env|PASSWORD=hunter2|PGPASSWORD=hunter2|make", "env PASSWORD=*** PGPASSWORD=*** make"},
	{"env|AWS_SECRET_ACCESS_KEY=wJalr/K7+x=|ls", "env AWS_SECRET_ACCESS_KEY=*** ls"},
	{"x|token:hunter2|--api-key|hunter2|--client_secret:hunter2", "x token:*** --api-key *** --client_secret:***"},
	{"x|--credentials=hunter2|--auth=hunter2|--key=hunter2", "x --credentials=*** --auth=*** --key=***"},
	{"java|-Djavax.net.ssl.keyStorePassword=hunter2|-Dkey=hunter2|Main",
		"java -Djavax.net.ssl.keyStorePassword=*** -Dkey=*** Main"},
	{"x|dbPassword=hunter2", "x dbPassword=***"},
	{"x|password: hunter2", "x password: ***"},
	{"x|Token:|hunter2|y", "x Token: *** y"},
	{"mysqld password=hunter2 next", "mysqld password=*** next"},
	// In scripts, and JSON.
	{"sh|-c|PASS=1 make|x", "sh -c PASS=*** x"},
	{"sh|-c|cd / && x --token hunter2 -v", "sh -c cd / && x --token *** -v"},
	{"sh|-c|x --password 'two words' -v", "sh -c x --password '***' -v"},
	{`sh|-c|x --password="two \"words\"" -v`, `sh -c x --password="***" -v`},
	{`sh|-c|x "--password=two words" -v`, `sh -c x "--password=***" -v`},
	{`x|{"user": "me", "password" : "hunter2", "n": 1}`, `x {"user": "me", "password" : "***", "n": 1}`},
	{`sh|-c|echo {\"token\":\"hunter2\"} next`, `sh -c echo {\"token\":\"***`},
	{"python3|-c|import x\nx(password='hunter2', b=1)", "python3 -c import x x(password='***', b=1)"},
	// Of HTTP.
	{"curl|-H|Authorization: Bearer hunter2|-v", "curl -H Authorization: *** -v"},
	{"curl|-H|Authorization: Basic aHVu dGVyMg==|-v", "curl -H Authorization: *** -v"},
	{"sh|-c|curl -H 'Authorization: Bearer hunter2' -v", "sh -c curl -H 'Authorization: ***' -v"},
	{"curl|-H|Cookie: a=1; b=hunter2|-v", "curl -H Cookie: *** -v"},
	{"curl|-H|X-Auth-Token: hunter2", "curl -H X-Auth-Token: ***"},
	{"git|-c|http.extraheader=AUTHORIZATION: basic hunter2|fetch", "git -c http.extraheader=AUTHORIZATION: *** fetch"},
	{"x|Bearer|hunter2", "x Bearer ***"},
	{"sh|-c|token: Bearer hunter2", "sh -c token: ***"},
	{"sh|-c|x; y token: Bearer hunter2 z", "sh -c x; y token: *** z"},
	// URLs.
	{"git|clone|https://me:hunter2@host/x.git", "git clone https://me:***@host/x.git"},
	{"psql|postgres://me:hun/ter?2@host/db", "psql postgres://me:***@host/db"},
	{"psql|postgres://me:1234@host:5432/db?a=b@c", "psql postgres://me:***@host:5432/db?a=b@c"},
	{"curl|https://host/x?token=hunter2&a=b", "curl https://host/x?token=***"},
	{"curl|-x|me:hunter2@proxy:3128|x", "curl -x me:***@proxy:3128 x"},
	{"curl|https://ghp_0123456789abcdefghij@github.com/x", "curl https://***@github.com/x"},
	// Tokens that say what they are.
	{"x|eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln-_x", "x ***"},
	{"x|--id=AKIAIOSFODNN7EXAMPLE|glpat-0123456789abcdefghij", "x --id=*** ***"},
	{"x|-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "x -----BEGIN RSA PRIVATE***"},
	// What programs take.
	{"mysql|-uroot|-phunter2|db", "mysql -uroot -p*** db"},
	{"mysql|-u|root|-p|db", "mysql -u root -p db"},
	{"/usr/bin/mariadb-dump|-phun ter2|db", "/usr/bin/mariadb-dump -p*** db"},
	{"sh|-c|cd /; mysqldump -phunter2 db", "sh -c cd /; mysqldump -p*** db"},
	{"sudo|-u|me|sshpass|-p|hunter2|ssh|host", "sudo -u me sshpass -p *** ssh host"},
	{"sshpass|-phunter2|ssh|host", "sshpass -p*** ssh host"},
	{"curl|-u|me:hunter2|https://host", "curl -u *** https://host"},
	{"curl|-sSu|me:hunter2|https://host", "curl -sSu *** https://host"},
	{"redis-cli|-h|host|-a|hunter2|ping", "redis-cli -h host -a *** ping"},
	{"openssl|enc|-k|hunter2|-pass|pass:hunter2", "openssl enc -k *** -pass ***"},
	{"docker|login|-u|me|-p|hunter2", "docker login -u me -p ***"},
	// Control characters are no part of a line.
	{"x|\x1b[31mred\r\n\x7f", "x  [31mred   "},
}

func TestMaskSecrets(t *testing.T) {
	t.Parallel()
	for _, c := range commandLineCases {
		raw := []byte(strings.ReplaceAll(c.line, "|", "\x00") + "\x00")
		if got := maskSecrets(raw); got != c.want {
			t.Errorf("%q\n is %q\n not %q", c.line, got, c.want)
		}
	}
}

// Of a command, each argument is masked by itself.
func TestMaskCommand(t *testing.T) {
	t.Parallel()
	got := Mask([]string{"unspool", "record", "--", "x", "--password", "two words", "", "a b", "--token=x"})
	want := []string{"unspool", "record", "--", "x", "--password", "***", "", "a b", "--token=***"}
	if !slices.Equal(got, want) || Mask(nil) != nil {
		t.Errorf("%q", got)
	}
}

// However long a command line is, and wherever it is cut, it is recorded in bounds, and no part of a secret is.
func TestRecordedCommandLines(t *testing.T) {
	t.Parallel()
	const most = perfdata.MostCommandLine
	for _, c := range []struct {
		raw, begins string
		least       int
	}{
		{strings.Repeat("x", most), "…", 0},
		{"prog\x00" + strings.Repeat("x", most), "prog …", 0},
		{"prog\x00" + strings.Repeat("x ", most), "prog x x ", most - 8},
		{"prog\x00" + strings.Repeat("\u00fc ", most), "prog \u00fc \u00fc ", most - 8},
	} {
		got := recordedCommandLine([]byte(c.raw[:most]), true)
		if !strings.HasPrefix(got, c.begins) || !strings.HasSuffix(got, "…") || len(got) > most || len(got) < c.least ||
			!utf8.ValidString(got) {
			t.Errorf("%.40q…: %.40q…%q of %d bytes", c.raw, got, got[max(0, len(got)-4):], len(got))
		}
	}
	const secret = "https://me:hunter2hunter2@host"
	for at := range secret {
		line := strings.Repeat("x", most-at-1) + "\x00" + secret
		if got := recordedCommandLine([]byte(line[:most]), true); strings.Contains(got, "hun") {
			t.Errorf("cut after %d bytes of the URL: …%q", at, got[len(got)-40:])
		}
	}
	if got := recordedCommandLine([]byte(strings.Repeat("key=1 ", most/6)), false); len(got) > most {
		t.Errorf("%d bytes", len(got))
	}
}

func FuzzMaskSecrets(f *testing.F) {
	for _, c := range commandLineCases {
		f.Add(strings.ReplaceAll(c.line, "|", "\x00"), "hunter2")
	}
	f.Fuzz(func(t *testing.T, before, secret string) {
		line := maskSecrets([]byte(before))
		if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }); i >= 0 {
			t.Errorf("%q: %q at %d", before, line, i)
		}
		secret = strings.ReplaceAll(secret, "\x00", "")
		if len(secret) < 4 {
			return
		}
		// Whatever stands before it, an argument that a name begins has its secret masked. No part of its own remains.
		for _, name := range []string{"--password=", "TOKEN=", "--secret\x00"} {
			of := func(secret string) string { return maskSecrets([]byte(before + "\x00" + name + secret + "\x00-v")) }
			value := strings.Trim(secret, spaces+"=>-")
			if value == "" || slices.Contains([]string{"--password", "--secret"}, value) {
				continue
			}
			if a, b := of("xxxx"), of("x"+value); a != b {
				t.Errorf("%q %s%q: %q, and %q of xxxx", before, name, secret, b, a)
			}
		}
	})
}
