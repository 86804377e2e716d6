package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/converter"

	"millwright/process/connection"
)

// codecServerOptions is the command `millwright codec-server` with its flags.
type codecServerOptions struct {
	address  string
	keysPath string
	origins  []string
}

func codecServerCommand() *cobra.Command {
	var s codecServerOptions
	c := &cobra.Command{
		Use:   "codec-server",
		Short: "Decrypt payloads for Temporal's UI, on this machine only",
		Long: `codec-server is a codec server for Temporal: it decrypts payloads for Temporal's UI in a browser on this machine, and for the command
"temporal" with --codec-endpoint. Everybody who can reach the server can read payloads. So it listens on a loopback address only, and
answers web pages of the given origins only. It ends with SIGINT or SIGTERM.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return s.run(c.Context(), c.OutOrStdout()) },
	}
	c.Flags().
		StringVar(&s.address, "address", "127.0.0.1:8234", "host:port to listen on; the host must be a loopback address")
	c.Flags().
		StringVar(&s.keysPath, "payload-keys-path", "", "file with the keys: the same file as for worker and bridge (required)")
	c.Flags().
		StringSliceVar(&s.origins, "ui-origin", []string{"http://127.0.0.1:8233", "http://localhost:8233"}, "origins of the UI's pages: scheme, host and port")
	_ = c.MarkFlagRequired("payload-keys-path")
	return c
}

// run serves the codec until ctx is done.
func (s codecServerOptions) run(ctx context.Context, out io.Writer) error {
	host, _, err := net.SplitHostPort(s.address)
	if err != nil {
		return fmt.Errorf("--address: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf(
			"--address: %s is not a loopback address, and everybody who reaches this server can read payloads",
			host,
		)
	}
	keys, err := connection.ReadKeys(s.keysPath)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("listen on --address: %w", err)
	}
	server := &http.Server{
		Handler:           allowOrigins(s.origins, converter.NewPayloadCodecHTTPHandler(keys)),
		ReadHeaderTimeout: 5 * time.Second,
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	_, _ = fmt.Fprintf(out, "codec server at http://%s, for pages of %v\n", listener.Addr(), s.origins)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve codec: %w", err)
	}
	return nil
}

// allowOrigins lets web pages of these origins call a handler (CORS), and refuses pages of other origins. A request
// without the header Origin does not come from a web page, and is accepted.
func allowOrigins(origins []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header.Get("Origin"); origin != "" {
			if !slices.Contains(origins, origin) {
				http.Error(w, "pages of this origin are not served: see --ui-origin", http.StatusForbidden)
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Allow-Methods", http.MethodPost)
			// the headers that the UI sends
			w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Namespace")
			w.Header().Set("Vary", "Origin")
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}
