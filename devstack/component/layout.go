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

// authority is the API server's certificate and its CA in one file. The API server creates it if absent.
func (l Layout) authority() string { return l.Path("pki", "apiserver.crt") }

// Kubeconfig is the kubeconfig of an identity.
func (l Layout) Kubeconfig(identity string) string {
	return l.Path("kubeconfig", identity+".kubeconfig")
}

// folders must exist before anything starts. They are private, because they contain the stack's tokens.
func (l Layout) folders() []string {
	return []string{
		l.Path("config"), l.Path("kubeconfig"), l.Path("logs"), l.Path("pki"),
		l.Path(Etcd), l.Path(Kwok), l.Path(Temporal), l.Path(VirtualCloud),
	}
}
