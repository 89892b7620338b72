//! The verbs on users, virtual hosts, permissions and limits, with a real catalog behind them.

use super::transcripts;
use super::world::start;
use expect_test::expect;

#[expect(clippy::too_many_lines, reason = "a transcript")]
#[test]
fn users_are_kept_as_rabbitmqctl_keeps_them_ctl_06() {
    let cluster = start(1);
    let lines = [
        "-n NODE add_user ann secret",
        "-n NODE -q add_user ben kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR --pre-hashed-password",
        "-n NODE add_user ann again",
        "-n NODE add_user cid no-base64! --pre-hashed-password",
        "-n NODE set_user_tags ann administrator monitoring",
        "-n NODE list_users",
        "-n NODE list_users --formatter json",
        "-n NODE -q authenticate_user ben test12",
        "-n NODE authenticate_user ben test13",
        "-n NODE change_password ann other",
        "-n NODE change_password nobody other",
        "-n NODE set_user_limits ann {\"max-channels\":2}",
        "-n NODE set_user_limits ann {\"max-things\":2}",
        "-n NODE set_user_limits ann {",
        "-n NODE list_user_limits --global",
        "-n NODE list_user_limits --user ann",
        "-n NODE clear_user_limits ann all",
        "-n NODE clear_user_limits ann some",
        "-n NODE delete_user ann",
        "-n NODE delete_user ann",
    ];
    expect![[r#"
        $ -n NODE add_user ann secret
        Adding user "ann" ...
        Done. Don't forget to grant the user permissions to some virtual hosts! See 'rabbitmqctl help set_permissions' to learn more.
        = 0

        $ -n NODE -q add_user ben kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR --pre-hashed-password
        = 0

        $ -n NODE add_user ann again
        Adding user "ann" ...
        ! Error:
        ! User "ann" already exists
        = 70

        $ -n NODE add_user cid no-base64! --pre-hashed-password
        ! Error:
        ! Could not Base64 decode provided password hash value
        = 65

        $ -n NODE set_user_tags ann administrator monitoring
        Setting tags for user "ann" to [administrator, monitoring] ...
        = 0

        $ -n NODE list_users
        Listing users ...
        user	tags
        ann	[administrator, monitoring]
        ben	[]
        guest	[administrator]
        = 0

        $ -n NODE list_users --formatter json
        [
        {"user":"ann","tags":["administrator","monitoring"]}
        ,{"user":"ben","tags":[]}
        ,{"user":"guest","tags":["administrator"]}
        ]
        = 0

        $ -n NODE -q authenticate_user ben test12
        Success
        = 0

        $ -n NODE authenticate_user ben test13
        Authenticating user "ben" ...
        ! Error:
        ! Error: failed to authenticate user "ben"
        ! user 'ben' - invalid credentials
        = 65

        $ -n NODE change_password ann other
        Changing password for user "ann" ...
        = 0

        $ -n NODE change_password nobody other
        Changing password for user "nobody" ...
        ! Error:
        ! User "nobody" does not exist
        = 67

        $ -n NODE set_user_limits ann {"max-channels":2}
        Setting user limits to "{"max-channels":2}" for user "ann" ...
        = 0

        $ -n NODE set_user_limits ann {"max-things":2}
        ! Error:
        ! Unrecognised terms [{<<"max-things">>,2}] in user-limits
        = 69

        $ -n NODE set_user_limits ann {
        ! Error:
        ! Could not parse JSON document: ~c"{"
        = 69

        $ -n NODE list_user_limits --global
        Listing limits for all users ...
        user	limits
        ann	{"max-channels":2}
        = 0

        $ -n NODE list_user_limits --user ann
        Listing limits for user "ann" ...
        {"max-channels":2}
        = 0

        $ -n NODE clear_user_limits ann all
        Clearing all limits for user "ann" ...
        = 0

        $ -n NODE clear_user_limits ann some
        ! Error:
        ! limit_type must be one of max-connections, max-channels, all
        = 64

        $ -n NODE delete_user ann
        Deleting user "ann" ...
        = 0

        $ -n NODE delete_user ann
        Deleting user "ann" ...
        ! Error:
        ! User "ann" does not exist
        = 67
    "#]].assert_eq(&transcripts(&cluster, &lines));
}

#[expect(clippy::too_many_lines, reason = "a transcript")]
#[test]
fn permissions_are_kept_as_rabbitmqctl_keeps_them_ctl_05_13() {
    let cluster = start(1);
    let lines = [
        "-n NODE -q add_user ann secret",
        "-n NODE set_permissions ann ^a .* .*",
        "-n NODE set_permissions -p v ann .* .* .*",
        "-n NODE set_permissions nobody .* .* .*",
        "-n NODE set_permissions ann ( .* .*",
        "-n NODE set_permissions ann .*",
        "-n NODE list_permissions",
        "-n NODE list_permissions -p v",
        "-n NODE list_user_permissions ann",
        "-n NODE -q list_user_permissions nobody",
        "-n NODE set_topic_permissions ann amq.topic ^{username} ^r",
        "-n NODE list_topic_permissions",
        "-n NODE list_user_topic_permissions ann",
        "-n NODE clear_topic_permissions ann amq.topic",
        "-n NODE clear_permissions ann",
        "-n NODE clear_permissions nobody",
        "-n NODE list_permissions --formatter csv",
    ];
    expect![[r#"
        $ -n NODE -q add_user ann secret
        = 0

        $ -n NODE set_permissions ann ^a .* .*
        Setting permissions for user "ann" in vhost "/" ...
        = 0

        $ -n NODE set_permissions -p v ann .* .* .*
        Setting permissions for user "ann" in vhost "v" ...
        ! Error:
        ! Virtual host v does not exist
        = 69

        $ -n NODE set_permissions nobody .* .* .*
        Setting permissions for user "nobody" in vhost "/" ...
        ! Error:
        ! User nobody does not exist
        = 67

        $ -n NODE set_permissions ann ( .* .*
        Setting permissions for user "ann" in vhost "/" ...
        ! Error:
        ! {:invalid_regexp, ~c"(", {~c"missing )", 1}}
        = 69

        $ -n NODE set_permissions ann .*
        ! Error (argument validation): not enough arguments.
        ! Arguments given:
        ! 	-n ADDRESS1 set_permissions ann .*
        ! 
        ! Usage
        ! 
        ! rabbitmqctl [--node <node>] [--longnames] [--quiet] set_permissions [--vhost <vhost>] <username> <conf> <write> <read>
        = 64

        $ -n NODE list_permissions
        Listing permissions for vhost "/" ...
        user	configure	write	read
        ann	^a	.*	.*
        guest	.*	.*	.*
        = 0

        $ -n NODE list_permissions -p v
        Listing permissions for vhost "v" ...
        ! Virtual host 'v' does not exist
        = 65

        $ -n NODE list_user_permissions ann
        Listing permissions for user "ann" ...
        vhost	configure	write	read
        /	^a	.*	.*
        = 0

        $ -n NODE -q list_user_permissions nobody
        ! Error:
        ! {:no_such_user, "nobody"}
        = 67

        $ -n NODE set_topic_permissions ann amq.topic ^{username} ^r
        Setting topic permissions on "amq.topic" for user "ann" in vhost "/" ...
        = 0

        $ -n NODE list_topic_permissions
        Listing topic permissions for vhost "/" ...
        user	exchange	write	read
        ann	amq.topic	^{username}	^r
        = 0

        $ -n NODE list_user_topic_permissions ann
        Listing topic permissions for user "ann" ...
        vhost	exchange	write	read
        /	amq.topic	^{username}	^r
        = 0

        $ -n NODE clear_topic_permissions ann amq.topic
        Clearing topic permissions on "amq.topic" for user "ann" in vhost "/" ...
        = 0

        $ -n NODE clear_permissions ann
        Clearing permissions for user "ann" in vhost "/" ...
        = 0

        $ -n NODE clear_permissions nobody
        Clearing permissions for user "nobody" in vhost "/" ...
        ! Error:
        ! User nobody does not exist
        = 67

        $ -n NODE list_permissions --formatter csv
        "user","configure","write","read"
        "guest",".*",".*",".*"
        = 0
    "#]].assert_eq(&transcripts(&cluster, &lines));
}

#[expect(clippy::too_many_lines, reason = "a transcript")]
#[test]
fn virtual_hosts_and_connections_ctl_04_07_11() {
    let cluster = start(1);
    let lines = [
        "-n NODE add_vhost v --description ours --tags a,b --default-queue-type quorum",
        "-n NODE add_vhost w --default-queue-type stream",
        "-n NODE list_vhosts",
        "-n NODE list_vhosts name description tags default_queue_type",
        "-n NODE list_vhosts nonsense",
        "-n NODE update_vhost_metadata v --description theirs",
        "-n NODE update_vhost_metadata w --description theirs",
        "-n NODE set_vhost_limits -p v {\"max-queues\":50}",
        "-n NODE list_vhost_limits -p v",
        "-n NODE list_vhost_limits --global",
        "-n NODE clear_vhost_limits -p v",
        "-n NODE enable_vhost_protection_from_deletion v",
        "-n NODE delete_vhost v",
        "-n NODE disable_vhost_protection_from_deletion v",
        "-n NODE disable_vhost_protection_from_deletion missing",
        "-n NODE delete_vhost v",
        "-n NODE delete_vhost v",
        "-n NODE close_connection <rabbit1@127.0.0.1.40.3.0> why",
        "-n NODE close_connection nonsense why",
        "-n NODE close_all_connections why",
        "-n NODE close_all_connections --global why",
    ];
    expect![[r#"
        $ -n NODE add_vhost v --description ours --tags a,b --default-queue-type quorum
        Adding vhost "v" ...
        = 0

        $ -n NODE add_vhost w --default-queue-type stream
        ! Error:
        ! Default queue type must be one of: quorum, classic. Provided: stream
        = 65

        $ -n NODE list_vhosts
        Listing vhosts ...
        name
        /
        v
        = 0

        $ -n NODE list_vhosts name description tags default_queue_type
        Listing vhosts ...
        name	description	tags	default_queue_type
        /	Default virtual host	[]	
        v	ours	[a, b]	quorum
        = 0

        $ -n NODE list_vhosts nonsense
        Listing vhosts ...
        ! Error (argument validation): Info key(s) nonsense are not supported
        = 64

        $ -n NODE update_vhost_metadata v --description theirs
        Updating metadata of vhost "v" ...
        = 0

        $ -n NODE update_vhost_metadata w --description theirs
        Updating metadata of vhost "w" ...
        ! Virtual host 'w' does not exist
        = 65

        $ -n NODE set_vhost_limits -p v {"max-queues":50}
        Setting vhost limits to "{"max-queues":50}" for vhost "v" ...
        = 0

        $ -n NODE list_vhost_limits -p v
        Listing limits for vhost "v" ...
        {"max-queues":50}
        = 0

        $ -n NODE list_vhost_limits --global
        Listing limits for all vhosts ...
        vhost	limits
        v	{"max-queues":50}
        = 0

        $ -n NODE clear_vhost_limits -p v
        Clearing vhost "v" limits ...
        = 0

        $ -n NODE enable_vhost_protection_from_deletion v
        Protecting virtual host "v" from deletion ...
        ! Error:
        ! the cluster's machine version is 1: virtual hosts can be protected from version 3 on, which it gets when all nodes run a release that knows that version
        = 65

        $ -n NODE delete_vhost v
        Deleting vhost "v" ...
        = 0

        $ -n NODE disable_vhost_protection_from_deletion v
        Unprotecting virtual host "v" from deletion ...
        ! Error:
        ! the cluster's machine version is 1: virtual hosts can be protected from version 3 on, which it gets when all nodes run a release that knows that version
        = 65

        $ -n NODE disable_vhost_protection_from_deletion missing
        Unprotecting virtual host "missing" from deletion ...
        ! Error:
        ! the cluster's machine version is 1: virtual hosts can be protected from version 3 on, which it gets when all nodes run a release that knows that version
        = 65

        $ -n NODE delete_vhost v
        Deleting vhost "v" ...
        ! Virtual host 'v' does not exist
        = 65

        $ -n NODE delete_vhost v
        Deleting vhost "v" ...
        ! Virtual host 'v' does not exist
        = 65

        $ -n NODE close_connection <rabbit1@127.0.0.1.40.3.0> why
        Closing connection <rabbit1@127.0.0.1.40.3.0>, reason: why...
        = 0

        $ -n NODE close_connection nonsense why
        Closing connection nonsense, reason: why...
        ! Error:
        ! {:badarg, :invalid_pid}
        = 69

        $ -n NODE close_all_connections why
        Closing all connections in vhost /, reason: why...
        Closed 1 connections
        = 0

        $ -n NODE close_all_connections --global why
        Closing all connections to node ADDRESS1 (across all vhosts), reason: why...
        Closed 1 connections
        = 0
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn tracing_is_switched_as_rabbitmqctl_does() {
    let cluster = start(1);
    let lines = [
        "-n NODE trace_on",
        "-n NODE list_vhosts name tracing",
        "-n NODE -q trace_off -p /",
        "-n NODE list_vhosts name tracing",
        "-n NODE trace_on -p missing",
    ];
    expect![[r#"
        $ -n NODE trace_on
        Starting tracing for vhost "/" ...
        Trace enabled for vhost /
        = 0

        $ -n NODE list_vhosts name tracing
        Listing vhosts ...
        name	tracing
        /	true
        = 0

        $ -n NODE -q trace_off -p /
        Trace disabled for vhost /
        = 0

        $ -n NODE list_vhosts name tracing
        Listing vhosts ...
        name	tracing
        /	false
        = 0

        $ -n NODE trace_on -p missing
        Starting tracing for vhost "missing" ...
        ! Virtual host 'missing' does not exist
        = 65
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
}

#[test]
fn alarms_are_set_as_rabbitmqctl_sets_them() {
    let cluster = start(1);
    let lines = [
        "-n NODE set_vm_memory_high_watermark absolute 2GB",
        "-n NODE set_disk_free_limit mem_relative 1.5",
        "-n NODE -q set_disk_free_limit mem_relative 1.5",
        "-n NODE set_vm_memory_high_watermark 1.5",
        "-n NODE set_disk_free_limit much",
    ];
    expect![[r#"
        $ -n NODE set_vm_memory_high_watermark absolute 2GB
        Setting memory threshold on ADDRESS1 to 2GB bytes ...
        = 0

        $ -n NODE set_disk_free_limit mem_relative 1.5
        Setting disk free limit on ADDRESS1 to 1.5 times the total RAM ...
        = 0

        $ -n NODE -q set_disk_free_limit mem_relative 1.5
        = 0

        $ -n NODE set_vm_memory_high_watermark 1.5
        ! Error (argument validation): Bad argument: The threshold should be a fraction between 0.0 and 1.0
        ! Arguments given:
        ! 	-n ADDRESS1 set_vm_memory_high_watermark 1.5
        ! 
        ! Usage
        ! 
        ! rabbitmqctl [--node <node>] [--longnames] [--quiet] set_vm_memory_high_watermark <fraction> | absolute <value>
        = 65

        $ -n NODE set_disk_free_limit much
        ! Error (argument validation): Bad argument.
        ! Arguments given:
        ! 	-n ADDRESS1 set_disk_free_limit much
        ! 
        ! Usage
        ! 
        ! rabbitmqctl [--node <node>] [--longnames] [--quiet] set_disk_free_limit <disk_limit> | mem_relative <fraction>
        = 65
    "#]]
    .assert_eq(&transcripts(&cluster, &lines));
}
