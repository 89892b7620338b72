//! Further verbs on users, virtual hosts and connections.

use super::*;

#[test]
fn further_verbs_about_users_and_vhosts_ctl_06() {
    let cluster = start(1);
    transcript(&cluster, "-n NODE add_vhost two");
    transcript(&cluster, "-n NODE add_user ann secret");
    let lines = [
        "-n NODE set_permissions_globally ann .* .* .*",
        "-n NODE -q list_user_permissions ann",
        "-n NODE set_permissions_globally bob .* .* .*",
        "-n NODE clear_password ann",
        "-n NODE authenticate_user ann secret",
        "-n NODE clear_password bob",
        "-n NODE set_vhost_tags two a b",
        "-n NODE -q list_vhosts name tags",
        "-n NODE close_all_user_connections guest why",
        "-n NODE close_all_user_connections bob why",
        "-n NODE close_all_connections --per-connection-delay 1 why",
    ];
    expect![[r#"
        $ -n NODE set_permissions_globally ann .* .* .*
        Setting permissions for user "ann" in all virtual hosts ...
        = 0

        $ -n NODE -q list_user_permissions ann
        vhost	configure	write	read
        /	.*	.*	.*
        two	.*	.*	.*
        = 0

        $ -n NODE set_permissions_globally bob .* .* .*
        Setting permissions for user "bob" in all virtual hosts ...
        ! Error:
        ! User bob does not exist
        = 67

        $ -n NODE clear_password ann
        Clearing password for user "ann" ...
        = 0

        $ -n NODE authenticate_user ann secret
        Authenticating user "ann" ...
        ! Error:
        ! Error: failed to authenticate user "ann"
        ! user 'ann' - invalid credentials
        = 65

        $ -n NODE clear_password bob
        Clearing password for user "bob" ...
        ! Error:
        ! User "bob" does not exist
        = 67

        $ -n NODE set_vhost_tags two a b
        Setting tags for virtual host "two" to [a, b] ...
        = 0

        $ -n NODE -q list_vhosts name tags
        name	tags
        /	[]
        two	[a, b]
        = 0

        $ -n NODE close_all_user_connections guest why
        Closing connections of user guest, reason: why...
        Closed 1 connections
        = 0

        $ -n NODE close_all_user_connections bob why
        Closing connections of user bob, reason: why...
        Closed 0 connections
        = 0

        $ -n NODE close_all_connections --per-connection-delay 1 why
        Closing all connections in vhost /, reason: why...
        Closed 1 connections
        = 0
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
}
