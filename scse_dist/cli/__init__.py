"""The command line; each verb imports what it needs when it is called."""
