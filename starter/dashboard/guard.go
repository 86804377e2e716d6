package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
)

// guard lets only the person who started the command use its server: other users of the machine do not have the token,
// and pages of other sites are refused although the browser would send the cookie.
type guard struct {
	token      string // in the address that the command prints
	session    string // in the cookie
	cookieName string
	policy     string // Content-Security-Policy
	next       http.Handler
	refuse     func(w http.ResponseWriter, r *http.Request, code int, text string)
}

// newSecret returns a random text of 256 bits that is safe in a URL.
func newSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return base64.RawURLEncoding.EncodeToString(secret)
}

// cookieNameOfPort returns the name of the cookie. Cookies are the same for all ports of a host, so dashboards on
// several ports need several names.
func cookieNameOfPort(port string) string { return "millwright-dashboard-" + port }

// contentPolicy returns a Content-Security-Policy that allows exactly this script and this style, and requests to the
// server itself.
func contentPolicy(script, style string) string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return strings.Join([]string{
		"default-src 'none'",
		"script-src " + hash(script),
		"style-src " + hash(style),
		"connect-src 'self'",
		"form-action 'self'",
		"base-uri 'none'",
		"frame-ancestors 'none'",
	}, "; ")
}

// ServeHTTP implements http.Handler.
func (g guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.setHeaders(w.Header())
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		g.refuse(w, r, http.StatusMethodNotAllowed, "This page only reads: the methods are GET and HEAD.")
	case !isLoopbackHost(r.Host):
		g.refuse(w, r, http.StatusForbidden, "This server answers only to a loopback address such as 127.0.0.1.")
	case !isSameOrigin(r):
		g.refuse(w, r, http.StatusForbidden, "A page of another site asked for this page.")
	case r.URL.Query().Has("token"):
		g.acceptToken(w, r)
	case !g.hasSession(r):
		g.refuse(w, r, http.StatusUnauthorized, "Open the address that millwright dashboard printed: it has a token.")
	default:
		g.next.ServeHTTP(w, r)
	}
}

// setHeaders sets the headers that each answer has.
func (g guard) setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", g.policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// acceptToken sets the cookie and redirects to the address without the token, so that the token stays out of the
// history of the browser.
func (g guard) acceptToken(w http.ResponseWriter, r *http.Request) {
	values := r.URL.Query()
	if subtle.ConstantTimeCompare([]byte(values.Get("token")), []byte(g.token)) != 1 {
		g.refuse(w, r, http.StatusUnauthorized, "The token is wrong: each start of millwright dashboard has a new one.")
		return
	}
	values.Del("token")
	http.SetCookie(w, &http.Cookie{
		Name: g.cookieName, Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	to := url.URL{Path: path.Clean("/" + r.URL.Path), RawQuery: values.Encode()} // a path "//host" would leave the server
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
}

func (g guard) hasSession(r *http.Request) bool {
	cookie, err := r.Cookie(g.cookieName)
	return err == nil && subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(g.session)) == 1
}

// isLoopbackHost reports whether the header Host names this machine. A name that an attacker's DNS server resolves to
// 127.0.0.1 is refused. The port may differ: a tunnel of ssh has another one.
func isLoopbackHost(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostPort, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// isSameOrigin reports whether the server's own page, or the person, asked for the page. A page on another port of this
// machine counts as another site.
func isSameOrigin(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	default:
		return false
	}
}
