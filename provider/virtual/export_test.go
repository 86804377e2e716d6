package virtual

// Over returns the provider of the virtualcloud behind a network.
var Over = over
