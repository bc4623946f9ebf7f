"""The logins of users at upstreams that want one."""
