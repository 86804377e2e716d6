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

// serveControlAPI serves the supervisor's HTTP API. Every call changes the stack; readers use stack.json instead.
//
//	POST /stop                                ends all components and the supervisor
//	POST /components/{name}/start             returns when the component is ready
//	POST /components/{name}/stop              SIGTERM, SIGKILL after a grace period; returns when the process has ended
//	POST /components/{name}/kill              SIGKILL; returns when the process has ended
//	POST /components/{name}/signal/{number}   any signal, for example SIGSTOP to pause and SIGCONT to continue
//
// Callers send the token of stack.json, because every user of this machine and every web page can reach loopback.
func (s *supervisor) serveControlAPI(listener net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { s.cancelRun(errStackStopped) })
	s.registerActionHandler(mux, "start", func(r *http.Request, name string) error {
		ctx, cancel := context.WithTimeout(r.Context(), s.plan.StartTimeout)
		defer cancel()
		return s.startComponent(ctx, name)
	})
	s.registerActionHandler(mux, "stop", func(_ *http.Request, name string) error {
		s.terminateComponent(name)
		return nil
	})
	s.registerActionHandler(mux, "kill", func(_ *http.Request, name string) error {
		s.killComponent(name)
		return nil
	})
	s.registerActionHandler(mux, "signal/{number}", func(r *http.Request, name string) error {
		number, err := strconv.Atoi(r.PathValue("number"))
		if err != nil {
			return fmt.Errorf("signal %s: %w", name, err)
		}
		c := s.findChild(name)
		if c == nil {
			return fmt.Errorf("signal %s: %w", name, os.ErrProcessDone)
		}
		return c.osProcess.Signal(syscall.Signal(number))
	})
	server := &http.Server{Handler: s.requireToken(mux), ReadHeaderTimeout: 5 * time.Second}
	slog.Error("control API ended", "error", server.Serve(listener))
}

// registerActionHandler registers the handler of one action on a component.
func (s *supervisor) registerActionHandler(
	mux *http.ServeMux,
	verb string,
	do func(r *http.Request, name string) error,
) {
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

// requireToken returns a handler that serves only requests with the token.
func (s *supervisor) requireToken(next http.Handler) http.Handler {
	s.mu.Lock()
	want := []byte("Bearer " + s.state.ControlToken)
	s.mu.Unlock()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			http.Error(w, "show the token of stack.json", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
