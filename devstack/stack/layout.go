package stack

import "path/filepath"

// layout is the folder of one stack.
type layout string

func (l layout) path(parts ...string) string {
	return filepath.Join(append([]string{string(l)}, parts...)...)
}

func (l layout) state() string               { return l.path("stack.json") }
func (l layout) lock() string                { return l.path("lock") }
func (l layout) log(component string) string { return l.path("logs", component+".log") }
func (l layout) auditLog() string            { return l.path("logs", "audit.log") }
func (l layout) auditPolicy() string         { return l.path("config", "audit-policy.yaml") }
func (l layout) stages() string              { return l.path("config", "stages.yaml") }
func (l layout) tokens() string              { return l.path("pki", "tokens.csv") }
func (l layout) kubectl() string             { return l.path("kubectl") }

// serviceAccountKey signs the tokens of ServiceAccounts. Key and tokens survive restarts.
func (l layout) serviceAccountKey() string { return l.path("pki", "service-account.key") }

// authority is the API server's certificate and its CA in one file. The API server creates it if absent.
func (l layout) authority() string { return l.path("pki", "apiserver.crt") }

func (l layout) kubeconfig(identity string) string {
	return l.path("kubeconfig", identity+".kubeconfig")
}

// folders must exist before anything starts. They are private, because they contain the stack's tokens.
func (l layout) folders() []string {
	return []string{
		l.path("config"), l.path("kubeconfig"), l.path("logs"), l.path("pki"),
		l.path(Etcd), l.path(Kwok), l.path(Temporal), l.path(VirtualCloud),
	}
}
