package component

import "path/filepath"

// Layout is the path of the folder of one stack.
type Layout string

// Path returns the path of a file or folder of the stack.
func (l Layout) Path(parts ...string) string {
	return filepath.Join(append([]string{string(l)}, parts...)...)
}

// State is the path of stack.json, which records the components and their processes.
func (l Layout) State() string { return l.Path("stack.json") }

// Lock is the path of the lock file that the supervisor holds.
func (l Layout) Lock() string { return l.Path("lock") }

// Log is the path of a component's log.
func (l Layout) Log(component string) string { return l.Path("logs", component+".log") }

// AuditLog is the path of the API server's audit log.
func (l Layout) AuditLog() string { return l.Path("logs", "audit.log") }

// Kubectl is the path of the script that runs kubectl as the admin.
func (l Layout) Kubectl() string { return l.Path("kubectl") }

func (l Layout) auditPolicy() string { return l.Path("config", "audit-policy.yaml") }
func (l Layout) stagesFile() string  { return l.Path("config", "stages.yaml") }
func (l Layout) tokensFile() string  { return l.Path("pki", "tokens.csv") }

// serviceAccountKey is the path of the key that signs ServiceAccount tokens. Key and tokens survive restarts.
func (l Layout) serviceAccountKey() string { return l.Path("pki", "service-account.key") }

// APIServerCertificate is the path of a file with the API server's certificate and its CA. The API server creates the
// file if absent.
func (l Layout) APIServerCertificate() string { return l.Path("pki", "apiserver.crt") }

// TemporalAuthority is the path of the certificate of the CA that signs the certificates of Temporal's server and
// clients. The file exists only if Temporal's frontend requires certificates.
func (l Layout) TemporalAuthority() string { return l.Path("pki", "temporal-ca.crt") }

// TemporalClient is the path of the certificate of Temporal's clients. The file exists only if Temporal's frontend
// requires certificates.
func (l Layout) TemporalClient() string { return l.Path("pki", "temporal-client.crt") }

// TemporalClientKey is the path of the private key of TemporalClient.
func (l Layout) TemporalClientKey() string { return l.Path("pki", "temporal-client.key") }

func (l Layout) temporalCertificate() string { return l.Path("pki", "temporal.crt") }
func (l Layout) temporalServerKey() string   { return l.Path("pki", "temporal.key") }

// ClusterAPIAuthority is the path of the CA certificate of Cluster API's webhooks.
func (l Layout) ClusterAPIAuthority() string { return l.Path("pki", "cluster-api-ca.crt") }

// clusterAPIWebhooks is the folder with the certificate and the key of Cluster API's webhooks. The file names are the
// names that Cluster API expects.
func (l Layout) clusterAPIWebhooks() string { return l.Path("pki", "cluster-api") }

// Kubeconfig is the path of an identity's kubeconfig.
func (l Layout) Kubeconfig(identity string) string {
	return l.Path("kubeconfig", identity+".kubeconfig")
}

// privateFolders are the folders that must exist before any component starts. Only the user may read them, because they
// contain the stack's tokens.
func (l Layout) privateFolders() []string {
	return []string{
		l.Path("config"), l.Path("kubeconfig"), l.Path("logs"), l.Path("pki"), l.clusterAPIWebhooks(),
		l.Path(Etcd), l.Path(Kwok), l.Path(Temporal), l.Path(VirtualCloud),
	}
}
