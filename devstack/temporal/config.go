package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
)

const loopback = "127.0.0.1"

// serverOptions returns the options of a single-process server. The SQLite file gets its schema when it is new; an
// existing one is used as it is, since Temporal has no schema migration for SQLite: the file is disposable.
func serverOptions(o options, logger log.Logger) ([]temporal.ServerOption, error) {
	store := config.SQL{
		PluginName:   sqlite.PluginName,
		DatabaseName: o.database,
		// One connection (the default) on purpose: more of them make SQLITE_BUSY storms. A write-ahead log that is never
		// synced is several times as fast as the rollback journal, and survives the death of the process, though not that of
		// the machine. SQLite ignores an unknown pragma or value without an error.
		ConnectAttributes: map[string]string{"mode": "rwc", "journal_mode": "wal", "synchronous": "off"},
	}
	if _, err := os.Stat(o.database); errors.Is(err, fs.ErrNotExist) {
		if err := createDatabase(store); err != nil {
			return nil, err
		}
	}
	cfg, err := serverConfig(o, store)
	if err != nil {
		return nil, err
	}
	return []temporal.ServerOption{
		temporal.WithConfig(cfg),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithDynamicConfigClient(dynamicConfig()),
	}, nil
}

// createDatabase makes the SQLite file with its schema. The file appears whole or not at all: one that a killed process
// left half made would be taken for a good one at the next start.
func createDatabase(store config.SQL) error {
	path := store.DatabaseName
	store.DatabaseName += ".new"
	// No write-ahead log here: the rename below moves the database file alone. Files that are left of an earlier database
	// are removed, because SQLite would read them as the journal or log of the new one.
	store.ConnectAttributes = map[string]string{"mode": "rwc"}
	for _, left := range []string{store.DatabaseName, store.DatabaseName + "-journal", path + "-wal", path + "-shm"} {
		if err := os.Remove(left); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what is left of a database: %w", err)
		}
	}
	if err := sqliteschema.SetupSchema(&store); err != nil {
		return fmt.Errorf("set up schema in %s: %w", store.DatabaseName, err)
	}
	if err := os.Rename(store.DatabaseName, path); err != nil {
		return fmt.Errorf("put database in place: %w", err)
	}
	return nil
}

// dynamicConfig sets what differs from the server's defaults, and why.
func dynamicConfig() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		// as the CLI's own dev server: UI and tests list
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(): 100,
		// bootstrap's namespace is usable at once
		dynamicconfig.NamespaceCacheRefreshInterval.Key():           time.Second,
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): true, // and so are its search attributes
		// By default a timer of less than a second may fire up to a second late, in case that the clocks of the servers
		// differ.
		dynamicconfig.TimerProcessorMaxTimeShift.Key(): 10 * time.Millisecond,
		// One shard does here what hundreds do elsewhere. The default limit of a shard is 20 reads a second. Above it tasks
		// wait, and a read of the timers that is refused is repeated only three seconds later: until then no timer fires.
		dynamicconfig.TimerProcessorMaxPollRPS.Key():    1000,
		dynamicconfig.TransferProcessorMaxPollRPS.Key(): 1000,
		// By default a task queue has four partitions, for several servers. In one server they only forward tasks to each
		// other.
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,
	}
}

func serverConfig(o options, store config.SQL) (*config.Config, error) {
	frontend := fmt.Sprintf("%s:%d", loopback, o.port)
	services := map[string]config.Service{}
	ports, err := internalPorts(o.internalPort, 2*len(temporal.DefaultServices))
	if err != nil {
		return nil, err
	}
	for i, name := range temporal.DefaultServices {
		rpc := config.RPC{GRPCPort: ports[2*i], MembershipPort: ports[2*i+1], BindOnIP: loopback}
		if name == "frontend" {
			rpc.GRPCPort = o.port
		}
		services[name] = config.Service{RPC: rpc}
	}
	disabled := "disabled"
	return &config.Config{
		Global: config.Global{
			Membership: config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: loopback},
			TLS:        o.tls.server(),
		},
		Persistence: config.Persistence{
			DefaultStore:     sqlite.PluginName,
			VisibilityStore:  sqlite.PluginName,
			NumHistoryShards: 1, // more do not help with one connection
			DataStores:       map[string]config.DataStore{sqlite.PluginName: {SQL: &store}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        "active",
			CurrentClusterName:       "active",
			ClusterInformation: map[string]cluster.ClusterInformation{
				"active": {Enabled: true, InitialFailoverVersion: 1, RPCAddress: frontend},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            services,
		Archival: config.Archival{
			History:    config.HistoryArchival{State: disabled},
			Visibility: config.VisibilityArchival{State: disabled},
		},
		PublicClient: config.PublicClient{HostPort: frontend},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: disabled},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: disabled},
		}},
	}, nil
}

// server returns the TLS of the frontend, and of the server's own workers as its clients. The server's services call
// each other without TLS.
func (f files) server() config.RootTLS {
	if f.certificate == "" {
		return config.RootTLS{}
	}
	client := config.ClientTLS{ServerName: loopback, RootCAFiles: []string{f.authority}}
	return config.RootTLS{
		Frontend: config.GroupTLS{
			Server: config.ServerTLS{
				CertFile:          f.certificate,
				KeyFile:           f.key,
				ClientCAFiles:     []string{f.authority},
				RequireClientAuth: true,
			},
			Client: client,
		},
		SystemWorker: config.WorkerTLS{CertFile: f.certificate, KeyFile: f.key, Client: client},
	}
}

// ui returns the TLS of the UI as a client of the frontend.
func (f files) ui() uiconfig.TLS {
	if f.certificate == "" {
		return uiconfig.TLS{}
	}
	return uiconfig.TLS{
		CaFile:                 f.authority,
		CertFile:               f.certificate,
		KeyFile:                f.key,
		EnableHostVerification: true,
		ServerName:             loopback,
	}
}

// internalPorts returns the n ports from first on, or any free ones when first is zero. A port that is merely free now
// may be another process' when the server listens there: who runs several servers side by side gives each a range.
func internalPorts(first, n int) ([]int, error) {
	if first == 0 {
		return freePorts(n)
	}
	ports := make([]int, 0, n)
	for i := range n {
		ports = append(ports, first+i)
	}
	return ports, nil
}

// freePorts returns n loopback ports that nobody listens on. They are held together before they are released, so that
// they differ.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		l, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
