// Package main is the Temporal half of the local stack: Temporal's server and UI in one process on SQLite, for the
// demo, the tests and the benchmarks. The devstack command starts it. It creates no namespace and no search attribute:
// that is what `millwright bootstrap` does, here as on any other Temporal. It is not for production: one process, no
// authentication.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	uioptions "github.com/temporalio/ui-server/v2/server/server_options"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/temporal"
)

// options are the command line of this process. Every port is on loopback.
type options struct {
	database     string // SQLite file; made when absent
	port         int    // gRPC frontend
	uiPort       int    // UI; 0 means no UI
	internalPort int    // first of eight ports between the server's own services; 0 takes free ones
	namespace    string // namespace that the UI opens with
	logLevel     string // debug, info, warn or error
	tls          files  // what the frontend shows and demands; without files it does not use TLS
}

// files are the PEM files of TLS. The server's workers and the UI are clients of the frontend, and show the frontend's
// certificate.
type files struct {
	certificate, key string // of the frontend, for 127.0.0.1
	authority        string // CA of that certificate and of those that clients must show
}

func main() {
	var o options
	flag.StringVar(&o.database, "db", "", "SQLite file that holds everything; made when absent (required)")
	flag.IntVar(&o.port, "port", 7233, "gRPC port on 127.0.0.1")
	flag.IntVar(&o.uiPort, "ui-port", 8233, "UI port on 127.0.0.1; 0 serves no UI")
	flag.IntVar(
		&o.internalPort,
		"internal-port",
		0,
		"first of eight ports on 127.0.0.1 for the server's own services; 0 takes free ones",
	)
	flag.StringVar(&o.namespace, "ui-namespace", "default", "namespace that the UI opens with")
	flag.StringVar(&o.logLevel, "log-level", "warn", "debug, info, warn or error")
	flag.StringVar(
		&o.tls.certificate,
		"tls-cert",
		"",
		"PEM file of the frontend's certificate for 127.0.0.1, also valid as that of a client; clients must then show one, too; empty: no TLS",
	)
	flag.StringVar(&o.tls.key, "tls-key", "", "PEM file of the key of --tls-cert")
	flag.StringVar(&o.tls.authority, "tls-ca", "", "PEM file of the CA of --tls-cert and of the clients' certificates")
	flag.Parse()
	if o.database == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "millwright-temporal:", err)
		os.Exit(1)
	}
}

// run serves until the process is told to stop.
func run(o options) error {
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Stdout: true, Level: o.logLevel}))
	serverOptions, err := serverOptions(o, logger)
	if err != nil {
		return err
	}
	if o.uiPort != 0 {
		ui := server.NewServer(uioptions.WithConfigProvider(&uiconfig.Config{
			TemporalGRPCAddress: fmt.Sprintf("%s:%d", loopback, o.port),
			Host:                loopback,
			Port:                o.uiPort,
			EnableUI:            true,
			DefaultNamespace:    o.namespace,
			DisableNewsFetch:    true,
			HideLogs:            true,
			CORS:                uiconfig.CORS{CookieInsecure: true}, // plain HTTP on loopback
			TLS:                 o.tls.ui(),
		}))
		go func() {
			if err := ui.Start(); err != nil {
				fmt.Fprintln(os.Stderr, "millwright-temporal: UI:", err)
			}
		}()
		defer ui.Stop()
	}
	s, err := temporal.NewServer(append(serverOptions, temporal.InterruptOn(temporal.InterruptCh()))...)
	if err != nil {
		return fmt.Errorf("create server: %w", err)
	}
	return s.Start() // blocks until interrupted
}
