//! The verbs on users, virtual hosts, permissions and limits, with a real catalog behind them.

use super::transcripts;
use super::world::start;
use expect_test::expect;

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
    expect![[""]].assert_eq(&transcripts(&cluster, &lines));
}

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
    expect![[""]].assert_eq(&transcripts(&cluster, &lines));
}

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
        "-n NODE delete_vhost v",
        "-n NODE delete_vhost v",
        "-n NODE close_connection <rabbit1@127.0.0.1.40.3.0> why",
        "-n NODE close_connection nonsense why",
        "-n NODE close_all_connections why",
        "-n NODE close_all_connections --global why",
    ];
    expect![[""]].assert_eq(&transcripts(&cluster, &lines));
}
