package api

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// Scope is what a route needs and what a request may do. A higher scope includes the lower ones.
type Scope int

// Scopes.
const (
	ScopeNone  Scope = iota // may do nothing
	ScopeRead               // look at what is recorded
	ScopeWrite              // add to what is recorded
	ScopeAdmin              // change how this process runs, delete data
)

func (s Scope) String() string {
	switch s {
	case ScopeRead:
		return "read"
	case ScopeWrite:
		return "write"
	case ScopeAdmin:
		return "admin"
	}
	return "none"
}

// Token is a bearer token that grants a scope. Only its hash is kept.
type Token struct {
	Scope  Scope
	SHA256 [sha256.Size]byte
}

// ParseTokens reads a token file: one "SCOPE TOKEN" a line, where SCOPE is read, write or admin and
// TOKEN is at least 16 characters, or sha256: and the hash in hex. Empty lines and # lines are skipped.
// Errors name the line, never the token.
func ParseTokens(data []byte, name string) ([]Token, error) {
	var tokens []Token
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		word, secret, _ := strings.Cut(line, " ")
		secret = strings.TrimSpace(secret)
		var t Token
		switch word {
		case "read":
			t.Scope = ScopeRead
		case "write":
			t.Scope = ScopeWrite
		case "admin":
			t.Scope = ScopeAdmin
		default:
			return nil, fmt.Errorf("%s:%d: a line is \"SCOPE TOKEN\" with the scope read, write or admin", name, n)
		}
		if sum, ok := strings.CutPrefix(secret, "sha256:"); ok {
			raw, err := hex.DecodeString(sum)
			if err != nil || len(raw) != sha256.Size {
				return nil, fmt.Errorf("%s:%d: sha256: is followed by 64 hex digits", name, n)
			}
			copy(t.SHA256[:], raw)
		} else {
			if len(secret) < 16 || strings.ContainsAny(secret, " \t") {
				return nil, fmt.Errorf("%s:%d: a token has at least 16 characters and no space in it", name, n)
			}
			t.SHA256 = sha256.Sum256([]byte(secret))
		}
		tokens = append(tokens, t)
	}
	return tokens, lines.Err()
}

// Access says who may do what. Its zero value lets everybody read and nobody else do anything.
type Access struct {
	// Loopback tells that every listener is bound to a loopback address: who reaches it is on this
	// machine and may do everything.
	Loopback bool
	// Authenticated tells whether the listener has verified who sent the request, by basic auth or by
	// a client certificate; such a request may do everything. nil means that no listener does.
	Authenticated func(*http.Request) bool
	// Tokens grant scopes to requests with "Authorization: Bearer TOKEN". A scope that some token
	// grants is no longer free for requests without one, whatever Loopback says.
	Tokens []Token
}

// scopeOf returns what r may do. The error is that of a bearer token that nobody knows.
func (a Access) scopeOf(r *http.Request) (Scope, *Error) {
	if a.Authenticated != nil && a.Authenticated(r) {
		return ScopeAdmin, nil
	}
	free := ScopeRead
	if a.Loopback {
		free = ScopeAdmin
	}
	if len(a.Tokens) == 0 {
		return free, nil
	}
	for _, t := range a.Tokens {
		free = min(free, t.Scope-1)
	}
	secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return free, nil
	}
	sum := sha256.Sum256([]byte(secret))
	granted := ScopeNone
	for _, t := range a.Tokens { // all of them, so that the time taken tells nothing
		if subtle.ConstantTimeCompare(sum[:], t.SHA256[:]) == 1 {
			granted = max(granted, t.Scope)
		}
	}
	if granted == ScopeNone {
		return ScopeNone, &Error{Code: "unknown_token", Message: "this bearer token is not one of ours", Hint: "see the file given as --web.tokens-file"}
	}
	return granted, nil
}

// LoopbackOnly tells whether every address is a loopback address (or a UNIX socket).
func LoopbackOnly(addrs []net.Addr) bool {
	for _, a := range addrs {
		tcp, ok := a.(*net.TCPAddr)
		if ok && !tcp.IP.IsLoopback() {
			return false
		}
	}
	return true
}
