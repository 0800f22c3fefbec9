package commandlines

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
)

// What of a command line is taken for a secret, and not recorded, is decided here. A "***" stands for
//   - what a name is given that says what it holds, see isSecretName: --password=x, --password x, PASSWORD=x,
//     "password": "x", token: x, also inside of an argument, such as a script. If the name begins the argument, all of
//     the rest is its value, spaces included, else the next word. Of Authorization and Cookie all that follows
//     is, up to the quote before the name.
//   - the password in https://user:password@host, and in user:password@host;
//   - what follows Bearer;
//   - words that look like a JSON Web Token or begin as the tokens of large services do, and private keys;
//   - what options of one letter are given by which known programs take passwords: see programPasswords.
//
// Where it is not clear where a secret ends, or whether an option has a value at all, too much is masked. A secret that
// nothing of this tells of is recorded, such as a password that is an argument by itself.

// mask stands for a secret.
const mask = "***"

// maskSecrets returns a command line without secrets, in one line. It has zeros between the arguments, as in
// /proc/PID/cmdline.
func maskSecrets(raw []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, string(maskArguments(bytes.TrimRight(raw, "\x00"))))
}

// Mask returns the arguments of a command without secrets.
func Mask(args []string) []string {
	if len(args) == 0 {
		return args
	}
	return strings.Split(string(maskArguments([]byte(strings.Join(args, "\x00")))), "\x00")
}

// maskArguments masks secrets in arguments with zeros between them.
func maskArguments(args []byte) []byte {
	m := masker{in: args}
	for m.at < len(m.in) {
		c := m.in[m.at]
		switch {
		case isNameByte(c):
			m.word()
		case bytes.HasPrefix(m.in[m.at:], []byte("://")):
			m.url()
		default:
			m.copy(m.at + 1)
		}
	}
	return m.out
}

// A masker reads a command line once, from front to back. What is before at has been written.
type masker struct {
	in, out   []byte
	at        int
	passwords string // options of the program that was named last: see programPasswords
}

// isNameByte reports whether names consist of such bytes.
func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
}

func isSpace(c byte) bool { return c <= ' ' }

// copy writes what is before end.
func (m *masker) copy(end int) {
	m.out = append(m.out, m.in[m.at:end]...)
	m.at = end
}

// mask leaves out what is before end.
func (m *masker) mask(end int) {
	if end > m.at {
		m.out = append(m.out, mask...)
		m.at = end
	}
}

// begins reports whether an argument begins at a place.
func (m *masker) begins(at int) bool { return at == 0 || m.in[at-1] == 0 }

// byteAt is the byte at a place, 0 behind the end.
func (m *masker) byteAt(at int) byte {
	if at >= len(m.in) {
		return 0
	}
	return m.in[at]
}

// until is where one of chars is, or an argument or all ends, at the place from or later.
func (m *masker) until(from int, chars string) int {
	if n := bytes.IndexAny(m.in[from:], chars+"\x00"); n >= 0 {
		return from + n
	}
	return len(m.in)
}

const spaces = " \t\n\v\f\r"

// word takes the name, option or word at m.at, and its value if that is a secret.
func (m *masker) word() {
	start, end := m.at, m.at
	for end < len(m.in) && isNameByte(m.in[end]) {
		end++
	}
	word := string(m.in[start:end])
	if isToken(word) {
		m.mask(end)
		return
	}
	if value, colon, ok := m.assigned(start, end); ok && isSecretName(word) && !(colon && start == 0) {
		m.copy(value)
		quote := m.quoteBefore(start)
		switch quoted := quote != 0 && m.byteAt(end) != quote && m.byteAt(end) != '\\'; {
		case quoted:
			m.mask(m.quoteEnd(value, quote))
		case colon && isHeader(word):
			m.mask(m.until(value, "\n"))
		default:
			m.value(m.begins(start) || m.begins(value))
		}
		return
	}
	if word[0] == '-' && m.option(word, end) {
		return
	}
	if strings.EqualFold(word, "bearer") && isSpace(m.byteAt(end)) && end < len(m.in) {
		m.next(end)
		return
	}
	if strings.HasSuffix(word, "PRIVATE") && bytes.HasPrefix(m.in[end:], []byte(" KEY-----")) {
		m.copy(end)
		m.mask(m.until(end, ""))
		return
	}
	m.copy(end)
	if start == 0 || strings.IndexByte("/'\"`(;|&", m.in[start-1]) >= 0 || isSpace(m.in[start-1]) {
		if options, known := programPasswords(word); known {
			m.passwords = options
		}
	}
	m.userInfo(word)
}

// assigned finds what the name from start to end is given by = or a colon, in an object of JSON, too.
func (m *masker) assigned(start, end int) (value int, colon, ok bool) {
	at := end
	if m.byteAt(at) == '\\' && (m.byteAt(at+1) == '"' || m.byteAt(at+1) == '\'') {
		at++
	}
	if q := m.quoteBefore(start); q != 0 && m.byteAt(at) == q {
		at++
	}
	blank := func() {
		for c := m.byteAt(at); c != 0 && isSpace(c); c = m.byteAt(at) {
			at++
		}
	}
	blank()
	switch c, then := m.byteAt(at), m.byteAt(at+1); {
	case c == '=':
	case c == ':' && then != ':' && !(then == '/' && m.byteAt(at+2) == '/'):
		colon = true
	default:
		return 0, false, false
	}
	at++
	for c := m.byteAt(at); c == '=' || c == '>'; c = m.byteAt(at) {
		at++
	}
	blank()
	if at < len(m.in) && m.in[at] == 0 && colon {
		at++ // of "Token:" the next argument is the value
	}
	return at, colon, at < len(m.in) && m.in[at] != 0
}

// value masks the value at m.at: all of the argument if it is whole, else the next word, as a shell sees it.
func (m *masker) value(whole bool) {
	if whole {
		m.mask(m.until(m.at, ""))
		return
	}
	if m.byteAt(m.at) == '\\' {
		m.copy(m.at + 1)
	}
	if q := m.byteAt(m.at); q == '"' || q == '\'' || q == '`' {
		m.copy(m.at + 1)
		m.mask(m.quoteEnd(m.at, q))
		return
	}
	end := m.wordEnd(m.at)
	if isScheme(string(m.in[m.at:end])) {
		for end < len(m.in) && m.in[end] != 0 && isSpace(m.in[end]) {
			end++
		}
		end = m.wordEnd(end)
	}
	m.mask(end)
}

// quoteEnd is where a quoted text ends that began before a place.
func (m *masker) quoteEnd(at int, quote byte) int {
	for {
		at = m.until(at, string(rune(quote))+"\\")
		if m.byteAt(at) != '\\' || m.byteAt(at+1) == quote && at+2 >= len(m.in) {
			return at
		}
		if at += 2; at >= len(m.in) {
			return len(m.in)
		}
		if m.in[at-1] == 0 {
			return at - 1
		}
	}
}

// wordEnd is where a word of a shell ends: spaces in quotes belong to it.
func (m *masker) wordEnd(at int) int {
	for {
		at = m.until(at, spaces+`"'`)
		q := m.byteAt(at)
		if q != '"' && q != '\'' {
			return at
		}
		closing := m.until(at+1, string(rune(q)))
		if m.byteAt(closing) != q {
			at++ // it closes what began before the name
			continue
		}
		at = closing + 1
	}
}

// quoteBefore is the quote before a place, 0 for none.
func (m *masker) quoteBefore(at int) byte {
	if at > 0 && (m.in[at-1] == '"' || m.in[at-1] == '\'') {
		return m.in[at-1]
	}
	return 0
}

// option takes an option, word, and what follows it, if that is a secret.
func (m *masker) option(word string, end int) bool {
	name := strings.TrimLeft(word, "-")
	if isSecretName(word) {
		if c := m.byteAt(end); !isSpace(c) || end >= len(m.in) {
			return false
		}
		m.next(end)
		return true
	}
	if name == "" || len(word)-len(name) != 1 || m.passwords == "" {
		return false
	}
	if i := strings.IndexByte(m.passwords, name[0]); i >= 0 && (len(name) > 1 || !isSpace(m.byteAt(end))) {
		whole := m.begins(m.at)
		m.copy(m.at + 2)
		m.value(whole)
		return true
	}
	// The last letter of several can take what follows; what a client of MySQL takes only directly is marked.
	last := strings.IndexByte(m.passwords, name[len(name)-1])
	if last < 0 || strings.HasPrefix(m.passwords[last+1:], "+") || !isSpace(m.byteAt(end)) || end >= len(m.in) {
		return false
	}
	m.next(end)
	return true
}

// next copies what is before end, and masks the word or argument behind it, unless that is another option with a
// secret.
func (m *masker) next(end int) {
	m.copy(end)
	for m.at < len(m.in) && isSpace(m.in[m.at]) {
		m.copy(m.at + 1)
	}
	if m.at == len(m.in) {
		return
	}
	end = m.at
	for end < len(m.in) && isNameByte(m.in[end]) {
		end++
	}
	if m.in[m.at] == '-' && isSecretName(string(m.in[m.at:end])) {
		return
	}
	m.value(m.begins(m.at))
}

// mostUserInfo bounds the length of a user's name and password before a host's name.
const mostUserInfo = 512

// url takes the beginning of a URL behind its scheme, which has a password if there is an @ behind a colon.
func (m *masker) url() {
	m.copy(m.at + 3)
	end := min(m.until(m.at, spaces+`"'`), m.at+mostUserInfo)
	colon := bytes.IndexByte(m.in[m.at:end], ':')
	if colon < 0 {
		return
	}
	colon += m.at
	port := colon + 1 // where it ends, if it is one
	for port < end && m.in[port] >= '0' && m.in[port] <= '9' {
		port++
	}
	isPort := port > colon+1 && m.byteAt(port) != '@' && !isNameByte(m.byteAt(port))
	if isPort || bytes.ContainsAny(m.in[m.at:colon], "/?#") {
		return
	}
	authority := end
	if n := bytes.IndexAny(m.in[colon:end], "/?#"); n >= 0 && bytes.IndexByte(m.in[colon:colon+n], '@') >= 0 {
		authority = colon + n
	}
	if at := bytes.LastIndexByte(m.in[colon:authority], '@'); at >= 0 {
		m.copy(colon + 1)
		m.mask(colon + at)
	}
}

// userInfo takes the password of user:password@host, where user was copied last.
func (m *masker) userInfo(user string) {
	if m.byteAt(m.at) != ':' || user == "npm" || user == "file" {
		return
	}
	end := min(m.until(m.at, spaces+`"'/`), m.at+mostUserInfo)
	at := bytes.LastIndexByte(m.in[m.at:end], '@')
	if at < 2 || !isNameByte(m.byteAt(m.at+at+1)) || bytes.HasPrefix(m.in[m.at+at+1:], []byte("sha256:")) {
		return
	}
	end = m.at + at
	m.copy(m.at + 1)
	m.mask(end)
}

var (
	// secretEndings are those of a part of a name that is for a secret.
	secretEndings = []string{"password", "passwords", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets",
		"token", "tokens", "credential", "credentials", "authorization", "apikey", "accesskey", "secretkey", "privatekey",
		"authkey"}
	// secretParts are the whole parts that are.
	secretParts = []string{"pass", "passin", "passout", "keypass", "storepass", "userpass", "dbpass", "pw", "key", "keys",
		"auth", "oauth", "cred", "creds", "cookie", "cookies", "jwt", "bearer", "psk", "pin", "otp", "sig", "signature"}
	// plainEndings are the last parts of names that say about a secret where it is, or how it is made.
	plainEndings = []string{"file", "files", "path", "dir", "directory", "fd", "name", "type", "size", "length", "len",
		"bits", "format", "algorithm", "alg", "mode", "method", "url", "uri", "host", "port", "user", "username", "ttl",
		"expiry", "timeout", "store", "provider", "plugin", "sock", "socket", "prompt", "policy", "stdin", "count", "limit"}
	// plainBeginnings are the first parts of names of numbers, and of options without a value.
	plainBeginnings = []string{"max", "min", "num", "no"}
)

// isSecretName reports whether a variable, an option or a key of this name has a secret for a value. A name has parts:
// db-password, DB_PASSWORD and dbPassword have two.
func isSecretName(name string) bool {
	parts := nameParts(strings.TrimPrefix(name, "-D")) // of a property
	if len(parts) == 0 || slices.Contains(plainBeginnings, parts[0]) ||
		slices.Contains(plainEndings, parts[len(parts)-1]) {
		return false
	}
	return slices.ContainsFunc(parts, func(part string) bool {
		return slices.Contains(secretParts, part) ||
			slices.ContainsFunc(secretEndings, func(end string) bool { return strings.HasSuffix(part, end) })
	})
}

// nameParts are the parts of a name, in small letters.
func nameParts(name string) []string {
	var split strings.Builder
	var before rune
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(before) {
			split.WriteByte(' ')
		}
		if before = r; r == '-' || r == '_' || r == '.' {
			r = ' '
		}
		split.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(split.String())
}

// isHeader reports whether a name is that of a header whose value can have spaces.
func isHeader(name string) bool {
	parts := nameParts(name)
	last := parts[len(parts)-1]
	return last == "authorization" || last == "cookie"
}

// isScheme reports whether a word is what the value of an Authorization header begins with.
func isScheme(word string) bool {
	return slices.Contains([]string{"bearer", "basic", "digest", "negotiate", "token", "apikey"}, strings.ToLower(word))
}

// tokens are how tokens of large services begin, and how long they are at least.
var tokens = []struct {
	beginning string
	length    int
}{
	{"ghp_", 20}, {"gho_", 20}, {"ghu_", 20}, {"ghs_", 20}, {"ghr_", 20}, {"github_pat_", 20}, {"glpat-", 20},
	{"xoxb-", 20}, {"xoxp-", 20}, {"xoxa-", 20}, {"xoxs-", 20}, {"sk_live_", 20}, {"rk_live_", 20}, {"sk-", 40},
	{"AKIA", 20}, {"ASIA", 20}, {"AIza", 39}, {"ya29.", 20}, {"hvs.", 20}, {"npm_", 36},
}

// isToken reports whether a word looks like a token: a JSON Web Token has parts between dots, and begins with {" in
// base64.
func isToken(word string) bool {
	if strings.HasPrefix(word, "eyJ") && len(word) >= 20 && strings.Contains(word, ".") {
		return true
	}
	for _, t := range tokens {
		if strings.HasPrefix(word, t.beginning) && len(word) >= t.length {
			return true
		}
	}
	return false
}

// programPasswords are the options of one letter with which a program takes a password; behind a + those that it takes
// only in the same argument. They hold until another one of these is named: it may be run by sudo, or in a script.
func programPasswords(program string) (options string, known bool) {
	for _, p := range []struct{ name, options string }{
		{"mysql", "p+"}, {"mariadb", "p+"}, {"ldap", "w"}, {"mongo", "p"}, {"snmp", "AXc"},
	} {
		if strings.HasPrefix(program, p.name) {
			return p.options, true
		}
	}
	options, known = map[string]string{
		"sshpass": "p", "curl": "uU", "redis-cli": "a", "7z": "p+", "7za": "p+", "7zr": "p+", "zip": "P", "unzip": "P",
		"smbclient": "U", "ipmitool": "P", "sqlcmd": "P", "bcp": "P", "openssl": "k", "login": "p",
	}[program]
	return options, known
}
