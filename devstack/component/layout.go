package component

import "path/filepath"

// Layout is the folder of one stack.
type Layout string

// Path returns the path of a file or folder of the stack.
func (l Layout) Path(parts ...string) string {
	return filepath.Join(append([]string{string(l)}, parts...)...)
}

// State is the file that says what runs.
func (l Layout) State() string { return l.Path("stack.json") }

// Lock is the file that the supervisor holds locked.
func (l Layout) Lock() string { return l.Path("lock") }

// Log is the log of a component.
func (l Layout) Log(component string) string { return l.Path("logs", component+".log") }

// AuditLog is the file in which the API server records requests.
func (l Layout) AuditLog() string { return l.Path("logs", "audit.log") }

// Kubectl is the script that runs kubectl as administrator.
func (l Layout) Kubectl() string { return l.Path("kubectl") }

func (l Layout) auditPolicy() string { return l.Path("config", "audit-policy.yaml") }
func (l Layout) stages() string      { return l.Path("config", "stages.yaml") }
func (l Layout) tokens() string      { return l.Path("pki", "tokens.csv") }

// serviceAccountKey signs the tokens of ServiceAccounts. Key and tokens survive restarts.
func (l Layout) serviceAccountKey() string { return l.Path("pki", "service-account.key") }

// APIServerCertificate is the API server's certificate and its CA in one file. The API server creates it if absent.
func (l Layout) APIServerCertificate() string { return l.Path("pki", "apiserver.crt") }

// TemporalAuthority is the certificate of the CA of Temporal's certificates, if its frontend demands them: it signs
// that of the server, and that of the server's clients.
func (l Layout) TemporalAuthority() string { return l.Path("pki", "temporal-ca.crt") }

// TemporalClient is the certificate of the clients of a Temporal that demands one.
func (l Layout) TemporalClient() string { return l.Path("pki", "temporal-client.crt") }

// TemporalClientKey is the private key of TemporalClient.
func (l Layout) TemporalClientKey() string { return l.Path("pki", "temporal-client.key") }

func (l Layout) temporalServer() string    { return l.Path("pki", "temporal.crt") }
func (l Layout) temporalServerKey() string { return l.Path("pki", "temporal.key") }

// ClusterAPIAuthority is the certificate of the CA of the webhooks of Cluster API.
func (l Layout) ClusterAPIAuthority() string { return l.Path("pki", "cluster-api-ca.crt") }

// clusterAPIWebhooks is the folder of the certificate and its key with which Cluster API serves webhooks, under the
// names that it expects.
func (l Layout) clusterAPIWebhooks() string { return l.Path("pki", "cluster-api") }

// Kubeconfig is the kubeconfig of an identity.
func (l Layout) Kubeconfig(identity string) string {
	return l.Path("kubeconfig", identity+".kubeconfig")
}

// folders must exist before anything starts. They are private, because they contain the stack's tokens.
func (l Layout) folders() []string {
	return []string{
		l.Path("config"), l.Path("kubeconfig"), l.Path("logs"), l.Path("pki"), l.clusterAPIWebhooks(),
		l.Path(Etcd), l.Path(Kwok), l.Path(Temporal), l.Path(VirtualCloud),
	}
}
