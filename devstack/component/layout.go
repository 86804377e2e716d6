package component

import "path/filepath"

// StackFolder is the path of the folder of one stack.
type StackFolder string

// Path returns the path of a file or folder of the stack.
func (l StackFolder) Path(parts ...string) string {
	return filepath.Join(append([]string{string(l)}, parts...)...)
}

// StateFile is the path of stack.json, which records the components and their processes.
func (l StackFolder) StateFile() string { return l.Path("stack.json") }

// LockFile is the path of the supervisor's lock file.
func (l StackFolder) LockFile() string { return l.Path("lock") }

// LogFile is the path of a component's log.
func (l StackFolder) LogFile(component string) string { return l.Path("logs", component+".log") }

// AuditLogFile is the path of the API server's audit log.
func (l StackFolder) AuditLogFile() string { return l.Path("logs", "audit.log") }

// KubectlPath is the path of the script that runs kubectl as the admin.
func (l StackFolder) KubectlPath() string { return l.Path("kubectl") }

func (l StackFolder) auditPolicyFile() string { return l.Path("config", "audit-policy.yaml") }
func (l StackFolder) kwokStagesFile() string  { return l.Path("config", "stages.yaml") }
func (l StackFolder) tokensFile() string      { return l.Path("pki", "tokens.csv") }

// serviceAccountKeyFile is the path of the key that signs ServiceAccount tokens. Key and tokens survive restarts.
func (l StackFolder) serviceAccountKeyFile() string { return l.Path("pki", "service-account.key") }

// APIServerCertificateFile is the path of a file with the API server's certificate and its CA. The API server creates
// the file if absent.
func (l StackFolder) APIServerCertificateFile() string { return l.Path("pki", "apiserver.crt") }

// TemporalCACertificateFile is the path of the certificate of the CA that signs the certificates of Temporal's server
// and clients. The file exists only if Temporal's frontend requires certificates.
func (l StackFolder) TemporalCACertificateFile() string { return l.Path("pki", "temporal-ca.crt") }

// TemporalClientCertificateFile is the path of the certificate of Temporal's clients. The file exists only if
// Temporal's frontend requires certificates.
func (l StackFolder) TemporalClientCertificateFile() string {
	return l.Path("pki", "temporal-client.crt")
}

// TemporalClientKeyFile is the path of the private key of TemporalClientCertificateFile.
func (l StackFolder) TemporalClientKeyFile() string { return l.Path("pki", "temporal-client.key") }

func (l StackFolder) temporalServerCertificateFile() string { return l.Path("pki", "temporal.crt") }
func (l StackFolder) temporalServerKeyFile() string         { return l.Path("pki", "temporal.key") }

// ClusterAPICACertificateFile is the path of the CA certificate of Cluster API's webhooks.
func (l StackFolder) ClusterAPICACertificateFile() string { return l.Path("pki", "cluster-api-ca.crt") }

// clusterAPIWebhooksFolder is the folder with the certificate and the key of Cluster API's webhooks. The file names are
// the names that Cluster API expects.
func (l StackFolder) clusterAPIWebhooksFolder() string { return l.Path("pki", "cluster-api") }

// KubeconfigFile is the path of an identity's kubeconfig.
func (l StackFolder) KubeconfigFile(identity string) string {
	return l.Path("kubeconfig", identity+".kubeconfig")
}

// requiredFolders are the folders that must exist before any component starts. Only the user may read the private
// folders, because the folders contain the stack's tokens.
func (l StackFolder) requiredFolders() []string {
	return []string{
		l.Path("config"), l.Path("kubeconfig"), l.Path("logs"), l.Path("pki"), l.clusterAPIWebhooksFolder(),
		l.Path(Etcd), l.Path(Kwok), l.Path(Temporal), l.Path(VirtualCloud),
	}
}
