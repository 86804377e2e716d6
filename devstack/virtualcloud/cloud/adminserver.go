package cloud

import (
	"net/http"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
)

// handleAdmin adds the admin API, which package admin documents.
func (c *Cloud) handleAdmin(mux *http.ServeMux) {
	mux.HandleFunc("GET "+admin.PathBehaviour, answer(c, func(*http.Request) (any, error) { return c.Behaviour(), nil }))
	mux.HandleFunc("PUT "+admin.PathBehaviour, answer(c, func(r *http.Request) (any, error) {
		return c.changeBehaviour(r, admin.DefaultBehaviour())
	}))
	mux.HandleFunc("PATCH "+admin.PathBehaviour, answer(c, func(r *http.Request) (any, error) {
		return c.changeBehaviour(r, c.Behaviour())
	}))
	mux.HandleFunc("GET "+admin.PathFaults, answer(c, func(*http.Request) (any, error) { return c.Faults(), nil }))
	mux.HandleFunc("POST "+admin.PathFaults, answer(c, func(r *http.Request) (any, error) {
		var f admin.Fault
		if err := decode(r, &f); err != nil {
			return nil, err
		}
		return c.Faults(), c.AddFault(f)
	}))
	mux.HandleFunc("DELETE "+admin.PathFaults, answer(c, func(*http.Request) (any, error) {
		c.ClearFaults()
		return struct{}{}, nil
	}))
	mux.HandleFunc("POST "+admin.PathVanish, answer(c, func(r *http.Request) (any, error) {
		var v admin.Vanish
		if err := decode(r, &v); err != nil {
			return nil, err
		}
		return struct{}{}, c.Vanish(v)
	}))
	mux.HandleFunc("POST "+admin.PathRejoin, answer(c, func(*http.Request) (any, error) { return struct{}{}, c.Rejoin() }))
	mux.HandleFunc("POST "+admin.PathCreateByHand, answer(c, func(r *http.Request) (any, error) {
		var request virtual.CreateRequest
		if err := decode(r, &request); err != nil {
			return nil, err
		}
		return c.CreateByHand(request)
	}))
	mux.HandleFunc("GET "+admin.PathInstances, answer(c, func(*http.Request) (any, error) { return c.Instances(), nil }))
	mux.HandleFunc("GET "+admin.PathUserData, answer(c, func(r *http.Request) (any, error) {
		return c.UserData(r.URL.Query().Get("id"))
	}))
	mux.HandleFunc("GET "+admin.PathStats, answer(c, func(*http.Request) (any, error) { return c.Stats(), nil }))
	mux.HandleFunc("POST "+admin.PathReset, answer(c, func(*http.Request) (any, error) { return struct{}{}, c.Reset() }))
}

// changeBehaviour changes the fields of a behaviour that the request has, and sets the result.
func (c *Cloud) changeBehaviour(r *http.Request, b admin.Behaviour) (any, error) {
	if err := decode(r, &b); err != nil {
		return nil, err
	}
	if err := c.SetBehaviour(b); err != nil {
		return nil, err
	}
	return c.Behaviour(), nil
}

// answer serves one admin call.
func answer(c *Cloud, call func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		told, err := call(r)
		if err != nil {
			c.refuse(w, r, err)
			return
		}
		respond(w, http.StatusOK, told)
	}
}
