package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"millwright/starter/kubecli"
)

// server answers the requests for pages.
type server struct {
	watcher  *watcher
	details  *details
	ui       kubecli.UIPages
	renderer *renderer
	interval time.Duration   // least time between two events that a page gets
	stopped  context.Context //nolint:containedctx // ends the streams of all pages when the command ends
}

// fragmentHeader is the header with which the script of a page asks for the main part alone.
const fragmentHeader = "Millwright-Fragment"

// handler returns the handler of all pages, without the guard.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", s.serveOverview)
	mux.HandleFunc("/machines", s.serveMachines)
	mux.HandleFunc("/pool/{kind}/{namespace}/{name}", s.servePool)
	mux.HandleFunc("/machine/{kind}/{namespace}/{name}", s.serveMachine)
	mux.HandleFunc("/events", s.serveEvents)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, http.StatusNotFound, "There is no such page.")
	})
	return mux
}

// newView returns a view with what every page has.
func (s *server) newView(f *fleet, title, active string) view {
	return view{
		Title: title, Active: active, Context: f.context, Namespace: f.namespace,
		Clock: f.now.UTC().Format("15:04:05 UTC"), UI: s.ui.List(`ExecutionStatus="Running"`),
		Alarms: f.alarms(), IsLoading: f.isLoading,
	}
}

func (s *server) serveOverview(w http.ResponseWriter, r *http.Request) {
	f := s.watcher.current()
	v := s.newView(f, "Overview", "overview")
	v.Overview = f.overview(parseQuery(r.URL.Query()))
	v.Status = v.Overview.Headline
	if n := len(v.Overview.Causes) + v.Overview.MoreCauses; n > 0 {
		v.Title = fmt.Sprintf("%d stopped – %s", n, v.Title) // the tab of the browser shows it
	}
	s.write(w, r, http.StatusOK, v)
}

func (s *server) serveMachines(w http.ResponseWriter, r *http.Request) {
	f := s.watcher.current()
	v := s.newView(f, "Machines", "machines")
	v.Machines = f.machineList(parseQuery(r.URL.Query()))
	v.Status = countText(v.Machines.Paging.Total, "machine")
	s.write(w, r, http.StatusOK, v)
}

func (s *server) servePool(w http.ResponseWriter, r *http.Request) {
	f, id := s.watcher.current(), objectOfPath(r)
	p := f.byID[id]
	if p == nil {
		s.serveMissing(w, r, f, "There is no pool "+id.Key()+" here: it may be deleted.")
		return
	}
	v := s.newView(f, p.name(), "")
	found := s.details.readRollout(r.Context(), p)
	query := ""
	if p.id.Kind != kindLoose {
		query = s.poolUI(p)
	}
	v.Pool = f.poolPage(p, parseQuery(r.URL.Query()), found.report, found.note, query)
	v.Status = p.name() + ": " + p.state.Word() + ", " + p.counts.text(p.names())
	s.write(w, r, http.StatusOK, v)
}

// poolUI returns the page of Temporal's UI about a pool: the workflow that its status names, or else its workflows.
func (s *server) poolUI(p *pool) string {
	if p.operation != nil && p.operation.WorkflowID != "" {
		return s.ui.Run(p.operation.WorkflowID, "", "")
	}
	attribute := "MachineDeployment"
	if p.id.Kind == kindSet || p.id.Kind == kindClusterAPISet {
		attribute = "MachineSet"
	}
	return s.ui.List(fmt.Sprintf("MachineNamespace=%q AND %s=%q", p.id.Namespace, attribute, p.id.Name))
}

func (s *server) serveMachine(w http.ResponseWriter, r *http.Request) {
	f, id := s.watcher.current(), objectOfPath(r)
	m := f.machines[id]
	isName := len(validation.IsDNS1123Subdomain(id.Name))+len(validation.IsDNS1123Label(id.Namespace)) == 0
	if m == nil && (!isName || id.Kind != kindMachine && id.Kind != kindClusterAPIMachine) {
		s.serveMissing(w, r, f, "There is no machine "+id.Key()+" here.")
		return
	}
	found := s.details.readMachine(r.Context(), id, m)
	if m == nil && len(found.runs) == 0 && found.runsNote == "" {
		s.serveMissing(w, r, f, "There is no machine "+id.Key()+" here, and Temporal has no workflow of it.")
		return
	}
	v := s.newView(f, id.Key(), "")
	v.Machine = f.machinePage(id, m, found, s.ui)
	v.Status = id.Key() + ": " + v.Machine.Phase
	s.write(w, r, http.StatusOK, v)
}

func objectOfPath(r *http.Request) objectID {
	return objectID{r.PathValue("kind"), r.PathValue("namespace"), r.PathValue("name")}
}

func (s *server) serveMissing(w http.ResponseWriter, r *http.Request, f *fleet, text string) {
	v := s.newView(f, "Not found", "")
	v.Message = &messageView{Text: text}
	s.write(w, r, http.StatusNotFound, v)
}

// refuse answers with a page that shows nothing of the cluster.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, code int, text string) {
	s.write(w, r, code, view{Title: http.StatusText(code), Message: &messageView{Text: text}})
}

// write renders a page. The page is rendered before the first byte is sent, so an error of a template is no half page.
func (s *server) write(w http.ResponseWriter, r *http.Request, code int, v view) {
	var page bytes.Buffer
	if err := s.renderer.render(&page, v, r.Header.Get(fragmentHeader) != ""); err != nil {
		http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // not supported in tests
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(page.Len()))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = page.WriteTo(w) // an error means that the browser has gone
	}
}

// writeTimeout is how long a browser may take to read a page, or one event.
const writeTimeout = 30 * time.Second

// keepAliveInterval is the time between two events if nothing changes: the times on a page go on.
const keepAliveInterval = 15 * time.Second

// serveEvents tells a page that it may have changed, as server-sent events, until the page is closed.
func (s *server) serveEvents(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	last, _ := s.watcher.changes()
	for r.Method != http.MethodHead {
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := fmt.Fprintf(w, "event: change\ndata: %d\n\n", last); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		if !s.awaitChange(r.Context(), &last) {
			return
		}
	}
}

// awaitChange waits until something has changed since the version last, but at least for the interval. It returns false
// if the page is closed or the command ends.
func (s *server) awaitChange(ctx context.Context, last *uint64) bool {
	least, most := time.NewTimer(s.interval), time.NewTimer(keepAliveInterval)
	defer least.Stop()
	defer most.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-s.stopped.Done():
		return false
	case <-least.C:
	}
	version, changed := s.watcher.changes()
	if version == *last {
		select {
		case <-ctx.Done():
			return false
		case <-s.stopped.Done():
			return false
		case <-changed:
		case <-most.C:
		}
	}
	*last, _ = s.watcher.changes()
	return true
}
