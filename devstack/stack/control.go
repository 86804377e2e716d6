package stack

import (
	"context"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// serve answers the supervisor's HTTP API. All calls change something, because readers use stack.json:
//
//	POST /stop                                everything, and then the supervisor itself
//	POST /components/{name}/start             returns when ready
//	POST /components/{name}/stop              SIGTERM, SIGKILL after a grace period; returns when gone
//	POST /components/{name}/kill              SIGKILL; returns when gone
//	POST /components/{name}/signal/{number}   any signal, to pause (STOP) and continue (CONT)
//
// Callers send the token of stack.json: loopback is open to every user of this machine and to web pages.
func (s *supervisor) serve(listener net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { s.stop(errStopped) })
	s.handleAction(mux, "start", func(r *http.Request, name string) error {
		ctx, cancel := context.WithTimeout(r.Context(), s.plan.Timeout)
		defer cancel()
		return s.start(ctx, name)
	})
	s.handleAction(mux, "stop", func(_ *http.Request, name string) error {
		s.terminate(name)
		return nil
	})
	s.handleAction(mux, "kill", func(_ *http.Request, name string) error {
		s.kill(name)
		return nil
	})
	s.handleAction(mux, "signal/{number}", func(r *http.Request, name string) error {
		number, err := strconv.Atoi(r.PathValue("number"))
		if err != nil {
			return fmt.Errorf("signal %s: %w", name, err)
		}
		c := s.childNamed(name)
		if c == nil {
			return fmt.Errorf("signal %s: %w", name, os.ErrProcessDone)
		}
		return c.handle.Signal(syscall.Signal(number))
	})
	server := &http.Server{Handler: s.authorized(mux), ReadHeaderTimeout: 5 * time.Second}
	slog.Error("control API ended", "error", server.Serve(listener))
}

// handleAction adds the handler of one action on a component.
func (s *supervisor) handleAction(mux *http.ServeMux, verb string, do func(r *http.Request, name string) error) {
	mux.HandleFunc("POST /components/{name}/"+verb, func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if !slices.Contains(s.plan.Components, name) {
			http.Error(w, fmt.Sprintf("this stack has no component %q: have %v", name, s.plan.Components), http.StatusNotFound)
			return
		}
		if err := do(r, name); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

// authorized serves only requests with the token.
func (s *supervisor) authorized(next http.Handler) http.Handler {
	s.mu.Lock()
	want := []byte("Bearer " + s.state.Token)
	s.mu.Unlock()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			http.Error(w, "show the token of stack.json", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
