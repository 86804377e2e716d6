package component

import "path/filepath"

// Layout is the folder of one stack.
type Layout string

func (l Layout) Path(parts ...string) string {
	return filepath.Join(append([]string{string(l)}, parts...)...)
}

func (l Layout) State() string               { return l.Path("stack.json") }
func (l Layout) Lock() string                { return l.Path("lock") }
func (l Layout) Log(component string) string { return l.Path("logs", component+".log") }
func (l Layout) AuditLog() string            { return l.Path("logs", "audit.log") }
func (l Layout) auditPolicy() string         { return l.Path("config", "audit-policy.yaml") }
func (l Layout) stages() string              { return l.Path("config", "stages.yaml") }
func (l Layout) tokens() string              { return l.Path("pki", "tokens.csv") }
func (l Layout) Kubectl() string             { return l.Path("kubectl") }

// serviceAccountKey signs the tokens of ServiceAccounts. Key and tokens survive restarts.
func (l Layout) serviceAccountKey() string { return l.Path("pki", "service-account.key") }

// authority is the API server's certificate and its CA in one file. The API server creates it if absent.
func (l Layout) authority() string { return l.Path("pki", "apiserver.crt") }

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
