package component

import "path/filepath"

// Layout is the path of the folder of one stack.
type Layout string

// Path returns the path of a file or folder of the stack.
func (l Layout) Path(parts ...string) string {
	return filepath.Join(append([]string{string(l)}, parts...)...)
}

// StateFile is the path of stack.json, which records the components and their processes.
func (l Layout) StateFile() string { return l.Path("stack.json") }

// LockFile is the path of the supervisor's lock file.
func (l Layout) LockFile() string { return l.Path("lock") }

// LogFile is the path of a component's log.
func (l Layout) LogFile(component string) string { return l.Path("logs", component+".log") }

// AuditLogFile is the path of the API server's audit log.
func (l Layout) AuditLogFile() string { return l.Path("logs", "audit.log") }

// KubectlPath is the path of the script that runs kubectl as the admin.
func (l Layout) KubectlPath() string { return l.Path("kubectl") }

func (l Layout) auditPolicyFile() string { return l.Path("config", "audit-policy.yaml") }
func (l Layout) stagesFile() string      { return l.Path("config", "stages.yaml") }
func (l Layout) tokensFile() string      { return l.Path("pki", "tokens.csv") }

// serviceAccountKeyFile is the path of the key that signs ServiceAccount tokens. Key and tokens survive restarts.
func (l Layout) serviceAccountKeyFile() string { return l.Path("pki", "service-account.key") }

// APIServerCertificateFile is the path of a file with the API server's certificate and its CA. The API server creates
// the file if absent.
func (l Layout) APIServerCertificateFile() string { return l.Path("pki", "apiserver.crt") }

// TemporalCACertificateFile is the path of the certificate of the CA that signs the certificates of Temporal's server
// and clients. The file exists only if Temporal's frontend requires certificates.
func (l Layout) TemporalCACertificateFile() string { return l.Path("pki", "temporal-ca.crt") }

// TemporalClientCertificateFile is the path of the certificate of Temporal's clients. The file exists only if
// Temporal's frontend requires certificates.
func (l Layout) TemporalClientCertificateFile() string { return l.Path("pki", "temporal-client.crt") }

// TemporalClientKeyFile is the path of the private key of TemporalClientCertificateFile.
func (l Layout) TemporalClientKeyFile() string { return l.Path("pki", "temporal-client.key") }

func (l Layout) temporalServerCertificateFile() string { return l.Path("pki", "temporal.crt") }
func (l Layout) temporalServerKeyFile() string         { return l.Path("pki", "temporal.key") }

// ClusterAPICACertificateFile is the path of the CA certificate of Cluster API's webhooks.
func (l Layout) ClusterAPICACertificateFile() string { return l.Path("pki", "cluster-api-ca.crt") }

// clusterAPIWebhooksFolder is the folder with the certificate and the key of Cluster API's webhooks. The file names are
// the names that Cluster API expects.
func (l Layout) clusterAPIWebhooksFolder() string { return l.Path("pki", "cluster-api") }

// Kubeconfig is the path of an identity's kubeconfig.
func (l Layout) Kubeconfig(identity string) string {
	return l.Path("kubeconfig", identity+".kubeconfig")
}

// privateFolders are the folders that must exist before any component starts. Only the user may read the private
// folders, because the folders contain the stack's tokens.
func (l Layout) privateFolders() []string {
	return []string{
		l.Path("config"), l.Path("kubeconfig"), l.Path("logs"), l.Path("pki"), l.clusterAPIWebhooksFolder(),
		l.Path(Etcd), l.Path(Kwok), l.Path(Temporal), l.Path(VirtualCloud),
	}
}
