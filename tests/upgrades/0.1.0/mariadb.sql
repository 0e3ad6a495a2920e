SET foreign_key_checks = 0;
CREATE TABLE `auth_group` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `name` varchar(150) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `name` (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `auth_group_permissions` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `group_id` int(11) NOT NULL,
  `permission_id` int(11) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `auth_group_permissions_group_id_permission_id_0cd325b0_uniq` (`group_id`,`permission_id`),
  KEY `auth_group_permissio_permission_id_84c5c92e_fk_auth_perm` (`permission_id`),
  CONSTRAINT `auth_group_permissio_permission_id_84c5c92e_fk_auth_perm` FOREIGN KEY (`permission_id`) REFERENCES `auth_permission` (`id`),
  CONSTRAINT `auth_group_permissions_group_id_b120cbf9_fk_auth_group_id` FOREIGN KEY (`group_id`) REFERENCES `auth_group` (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `auth_permission` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `name` varchar(255) NOT NULL,
  `content_type_id` int(11) NOT NULL,
  `codename` varchar(100) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `auth_permission_content_type_id_codename_01ab375a_uniq` (`content_type_id`,`codename`),
  CONSTRAINT `auth_permission_content_type_id_2f476e4b_fk_django_co` FOREIGN KEY (`content_type_id`) REFERENCES `django_content_type` (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=164 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (1, 'Can add log entry', 1, 'add_logentry');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (2, 'Can change log entry', 1, 'change_logentry');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (3, 'Can delete log entry', 1, 'delete_logentry');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (4, 'Can view log entry', 1, 'view_logentry');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (5, 'Can add permission', 2, 'add_permission');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (6, 'Can change permission', 2, 'change_permission');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (7, 'Can delete permission', 2, 'delete_permission');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (8, 'Can view permission', 2, 'view_permission');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (9, 'Can add group', 3, 'add_group');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (10, 'Can change group', 3, 'change_group');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (11, 'Can delete group', 3, 'delete_group');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (12, 'Can view group', 3, 'view_group');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (13, 'Can add user', 4, 'add_user');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (14, 'Can change user', 4, 'change_user');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (15, 'Can delete user', 4, 'delete_user');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (16, 'Can view user', 4, 'view_user');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (17, 'Can add content type', 5, 'add_contenttype');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (18, 'Can change content type', 5, 'change_contenttype');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (19, 'Can delete content type', 5, 'delete_contenttype');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (20, 'Can view content type', 5, 'view_contenttype');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (21, 'Can add session', 6, 'add_session');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (22, 'Can change session', 6, 'change_session');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (23, 'Can delete session', 6, 'delete_session');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (24, 'Can view session', 6, 'view_session');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (25, 'Can view consumer group', 7, 'view_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (26, 'Can change consumer group', 7, 'change_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (27, 'Can pause consumer groups', 7, 'pause_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (28, 'Can resume consumer groups', 7, 'resume_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (29, 'Can forget consumer groups', 7, 'forget_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (30, 'Can reset consumer groups', 7, 'reset_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (31, 'Can replay messages to consumer groups', 7, 'replay_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (32, 'Can rehearse messages with the handlers of groups', 7, 'rehearse_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (33, 'Can retry blocked messages of consumer groups now', 7, 'retry_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (34, 'Can skip blocked messages of consumer groups', 7, 'skip_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (35, 'Can give up running calls of consumer groups', 7, 'give_up_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (36, 'Can view partition', 8, 'view_partition');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (37, 'Can view stress test', 9, 'view_stressrun');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (38, 'Can view API token', 10, 'view_apitoken');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (39, 'Can add API token', 10, 'add_apitoken');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (40, 'Can change API token', 10, 'change_apitoken');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (41, 'Can revoke API tokens', 10, 'revoke_apitoken');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (42, 'Can add check endpoint', 11, 'add_checkendpoint');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (43, 'Can change check endpoint', 11, 'change_checkendpoint');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (44, 'Can delete check endpoint', 11, 'delete_checkendpoint');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (45, 'Can view check endpoint', 11, 'view_checkendpoint');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (46, 'Can test check endpoints', 11, 'test_checkendpoint');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (47, 'Can view dead letter', 12, 'view_deadmessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (48, 'Can redrive dead letters', 12, 'redrive_deadmessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (49, 'Can discard dead letters', 12, 'discard_deadmessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (50, 'Can edit dead letters and send them again', 12, 'edit_deadmessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (51, 'Can view move of a topic', 13, 'view_move');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (52, 'Can view delivery', 14, 'view_delivery');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (53, 'Can view cursor', 15, 'view_cursor');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (54, 'Can view prepared message', 16, 'view_preparedrow');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (55, 'Can check prepared messages', 16, 'check_prepared');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (56, 'Can commit prepared messages', 16, 'commit_prepared');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (57, 'Can roll back prepared messages', 16, 'rollback_prepared');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (58, 'Can view rate bucket', 17, 'view_ratebucket');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (59, 'Can view redrive', 18, 'view_redrive');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (60, 'Can view retry', 19, 'view_retrymessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (61, 'Can view rewind of a log', 20, 'view_rewind');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (62, 'Can view step', 21, 'view_step');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (63, 'Can read the metrics for Prometheus', 21, 'view_metrics');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (64, 'Can add system setting', 22, 'add_systemconfig');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (65, 'Can change system setting', 22, 'change_systemconfig');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (66, 'Can delete system setting', 22, 'delete_systemconfig');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (67, 'Can view system setting', 22, 'view_systemconfig');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (68, 'Can view topic', 23, 'view_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (69, 'Can add topic', 23, 'add_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (70, 'Can change topic', 23, 'change_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (71, 'Can send test messages to topics', 23, 'produce_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (72, 'Can add partitions to topics', 23, 'grow_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (73, 'Can retire topics', 23, 'retire_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (74, 'Can delete topics', 23, 'delete_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (75, 'Can view stream of Spark', 24, 'view_reader');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (76, 'Can forget streams of Spark', 24, 'forget_reader');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (77, 'Can view dedup key', 25, 'view_dedupkey');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (78, 'Can view consumer', 27, 'view_consumer');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (79, 'Can view rate bucket of a key', 28, 'view_keybucket');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (80, 'Can view edit of a dead letter', 29, 'view_letteredit');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (81, 'Can view message', 30, 'view_message');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (82, 'Can view bodies of messages and dead letters', 30, 'view_body');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (83, 'Can cancel delayed messages', 30, 'cancel_message');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (84, 'Can view indexed key', 31, 'view_keyentry');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (85, 'Can view held key', 32, 'view_heldkey');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (86, 'Can view alarm', 33, 'view_alarm');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (87, 'Can acknowledge alarms', 33, 'acknowledge_alarm');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (88, 'Can add alarm channel', 34, 'add_alarmchannel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (89, 'Can change alarm channel', 34, 'change_alarmchannel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (90, 'Can delete alarm channel', 34, 'delete_alarmchannel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (91, 'Can view alarm channel', 34, 'view_alarmchannel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (92, 'Can test alarm channels', 34, 'test_alarmchannel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (93, 'Can view alarm notification', 35, 'view_alarmnotification');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (94, 'Can add alarm rule', 36, 'add_alarmrule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (95, 'Can change alarm rule', 36, 'change_alarmrule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (96, 'Can delete alarm rule', 36, 'delete_alarmrule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (97, 'Can view alarm rule', 36, 'view_alarmrule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (98, 'Can mute alarm rules', 36, 'mute_alarmrule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (99, 'Can view archived day', 37, 'view_archivedday');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (100, 'Can view finding of the audit', 38, 'view_auditfinding');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (101, 'Can view place of the audit', 39, 'view_auditplace');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (102, 'Can view backlogs of hours and days', 40, 'view_backloglevel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (103, 'Can view consumption', 41, 'view_consumption');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (104, 'Can view consumption of hours and days', 42, 'view_consumptionlevel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (105, 'Can view error class', 43, 'view_errorclass');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (106, 'Can view error classes of hours and days', 44, 'view_errorlevel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (107, 'Can view sample of a group', 45, 'view_groupsample');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (108, 'Can view hot key', 46, 'view_hotkey');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (109, 'Can view file of the lake', 47, 'view_lakefile');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (110, 'Can view position of the lake', 48, 'view_lakeposition');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (111, 'Can view latency', 49, 'view_latency');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (112, 'Can view latency of hours and days', 50, 'view_latencylevel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (113, 'Can view ledger entry', 51, 'view_ledgerentry');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (114, 'Can view mark', 52, 'view_mark');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (115, 'Can view open delivery', 53, 'view_opendelivery');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (116, 'Can view overview', 54, 'view_overview');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (117, 'Can view sample of a partition', 55, 'view_partitionsample');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (118, 'Can view position', 56, 'view_position');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (119, 'Can view replayed message', 57, 'view_replayedmessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (120, 'Can view run', 58, 'view_run');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (121, 'Can start Spark jobs', 58, 'start_run');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (122, 'Can view staged message', 59, 'view_stagedmessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (123, 'Can view traffic', 60, 'view_traffic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (124, 'Can view traffic of hours and days', 61, 'view_trafficlevel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (125, 'Can add order', 62, 'add_order');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (126, 'Can change order', 62, 'change_order');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (127, 'Can delete order', 62, 'delete_order');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (128, 'Can view order', 62, 'view_order');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (129, 'Can add handled', 63, 'add_handled');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (130, 'Can change handled', 63, 'change_handled');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (131, 'Can delete handled', 63, 'delete_handled');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (132, 'Can view handled', 63, 'view_handled');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (133, 'Can view batch of tasks', 64, 'view_taskbatch');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (134, 'Can view schedule of a task', 65, 'view_taskschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (135, 'Can pause schedules of tasks', 65, 'pause_taskschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (136, 'Can view task', 67, 'view_taskrun');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (137, 'Can run tasks again', 67, 'run_taskrun');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (138, 'Can cancel tasks', 67, 'cancel_taskrun');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (139, 'Can edit tasks and run them', 67, 'copy_taskrun');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (140, 'Can add solar event', 68, 'add_solarschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (141, 'Can change solar event', 68, 'change_solarschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (142, 'Can delete solar event', 68, 'delete_solarschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (143, 'Can view solar event', 68, 'view_solarschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (144, 'Can add interval', 69, 'add_intervalschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (145, 'Can change interval', 69, 'change_intervalschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (146, 'Can delete interval', 69, 'delete_intervalschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (147, 'Can view interval', 69, 'view_intervalschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (148, 'Can add clocked', 70, 'add_clockedschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (149, 'Can change clocked', 70, 'change_clockedschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (150, 'Can delete clocked', 70, 'delete_clockedschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (151, 'Can view clocked', 70, 'view_clockedschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (152, 'Can add crontab', 71, 'add_crontabschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (153, 'Can change crontab', 71, 'change_crontabschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (154, 'Can delete crontab', 71, 'delete_crontabschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (155, 'Can view crontab', 71, 'view_crontabschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (156, 'Can add periodic task track', 72, 'add_periodictasks');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (157, 'Can change periodic task track', 72, 'change_periodictasks');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (158, 'Can delete periodic task track', 72, 'delete_periodictasks');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (159, 'Can view periodic task track', 72, 'view_periodictasks');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (160, 'Can add periodic task', 73, 'add_periodictask');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (161, 'Can change periodic task', 73, 'change_periodictask');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (162, 'Can delete periodic task', 73, 'delete_periodictask');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (163, 'Can view periodic task', 73, 'view_periodictask');
CREATE TABLE `auth_user` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `password` varchar(128) NOT NULL,
  `last_login` datetime(6) DEFAULT NULL,
  `is_superuser` tinyint(1) NOT NULL,
  `username` varchar(150) NOT NULL,
  `first_name` varchar(150) NOT NULL,
  `last_name` varchar(150) NOT NULL,
  `email` varchar(254) NOT NULL,
  `is_staff` tinyint(1) NOT NULL,
  `is_active` tinyint(1) NOT NULL,
  `date_joined` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `username` (`username`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `auth_user_groups` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `user_id` int(11) NOT NULL,
  `group_id` int(11) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `auth_user_groups_user_id_group_id_94350c0c_uniq` (`user_id`,`group_id`),
  KEY `auth_user_groups_group_id_97559544_fk_auth_group_id` (`group_id`),
  CONSTRAINT `auth_user_groups_group_id_97559544_fk_auth_group_id` FOREIGN KEY (`group_id`) REFERENCES `auth_group` (`id`),
  CONSTRAINT `auth_user_groups_user_id_6a12ed8b_fk_auth_user_id` FOREIGN KEY (`user_id`) REFERENCES `auth_user` (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `auth_user_user_permissions` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `user_id` int(11) NOT NULL,
  `permission_id` int(11) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `auth_user_user_permissions_user_id_permission_id_14a6b632_uniq` (`user_id`,`permission_id`),
  KEY `auth_user_user_permi_permission_id_1fbb5f2c_fk_auth_perm` (`permission_id`),
  CONSTRAINT `auth_user_user_permi_permission_id_1fbb5f2c_fk_auth_perm` FOREIGN KEY (`permission_id`) REFERENCES `auth_permission` (`id`),
  CONSTRAINT `auth_user_user_permissions_user_id_a95ead1b_fk_auth_user_id` FOREIGN KEY (`user_id`) REFERENCES `auth_user` (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `django_admin_log` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `action_time` datetime(6) NOT NULL,
  `object_id` longtext DEFAULT NULL,
  `object_repr` varchar(200) NOT NULL,
  `action_flag` smallint(5) unsigned NOT NULL CHECK (`action_flag` >= 0),
  `change_message` longtext NOT NULL,
  `content_type_id` int(11) DEFAULT NULL,
  `user_id` int(11) NOT NULL,
  PRIMARY KEY (`id`),
  KEY `django_admin_log_content_type_id_c4bce8eb_fk_django_co` (`content_type_id`),
  KEY `django_admin_log_user_id_c564eba6_fk_auth_user_id` (`user_id`),
  CONSTRAINT `django_admin_log_content_type_id_c4bce8eb_fk_django_co` FOREIGN KEY (`content_type_id`) REFERENCES `django_content_type` (`id`),
  CONSTRAINT `django_admin_log_user_id_c564eba6_fk_auth_user_id` FOREIGN KEY (`user_id`) REFERENCES `auth_user` (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `django_celery_beat_clockedschedule` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `clocked_time` datetime(6) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `django_celery_beat_crontabschedule` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `minute` varchar(240) NOT NULL,
  `hour` varchar(96) NOT NULL,
  `day_of_month` varchar(124) NOT NULL,
  `month_of_year` varchar(64) NOT NULL,
  `day_of_week` varchar(64) NOT NULL,
  `timezone` varchar(63) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `django_celery_beat_intervalschedule` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `every` int(11) NOT NULL,
  `period` varchar(24) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `django_celery_beat_periodictask` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `name` varchar(200) NOT NULL,
  `task` varchar(200) NOT NULL,
  `interval_id` int(11) DEFAULT NULL,
  `crontab_id` int(11) DEFAULT NULL,
  `solar_id` int(11) DEFAULT NULL,
  `clocked_id` int(11) DEFAULT NULL,
  `args` longtext NOT NULL,
  `kwargs` longtext NOT NULL,
  `queue` varchar(200) DEFAULT NULL,
  `exchange` varchar(200) DEFAULT NULL,
  `routing_key` varchar(200) DEFAULT NULL,
  `headers` longtext NOT NULL,
  `priority` int(10) unsigned DEFAULT NULL CHECK (`priority` >= 0),
  `expires` datetime(6) DEFAULT NULL,
  `expire_seconds` int(10) unsigned DEFAULT NULL CHECK (`expire_seconds` >= 0),
  `one_off` tinyint(1) NOT NULL,
  `start_time` datetime(6) DEFAULT NULL,
  `enabled` tinyint(1) NOT NULL,
  `last_run_at` datetime(6) DEFAULT NULL,
  `total_run_count` int(10) unsigned NOT NULL CHECK (`total_run_count` >= 0),
  `date_changed` datetime(6) NOT NULL,
  `description` longtext NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `name` (`name`),
  KEY `django_celery_beat_p_interval_id_a8ca27da_fk_django_ce` (`interval_id`),
  KEY `django_celery_beat_p_crontab_id_d3cba168_fk_django_ce` (`crontab_id`),
  KEY `django_celery_beat_p_solar_id_a87ce72c_fk_django_ce` (`solar_id`),
  KEY `django_celery_beat_p_clocked_id_47a69f82_fk_django_ce` (`clocked_id`),
  CONSTRAINT `django_celery_beat_p_clocked_id_47a69f82_fk_django_ce` FOREIGN KEY (`clocked_id`) REFERENCES `django_celery_beat_clockedschedule` (`id`),
  CONSTRAINT `django_celery_beat_p_crontab_id_d3cba168_fk_django_ce` FOREIGN KEY (`crontab_id`) REFERENCES `django_celery_beat_crontabschedule` (`id`),
  CONSTRAINT `django_celery_beat_p_interval_id_a8ca27da_fk_django_ce` FOREIGN KEY (`interval_id`) REFERENCES `django_celery_beat_intervalschedule` (`id`),
  CONSTRAINT `django_celery_beat_p_solar_id_a87ce72c_fk_django_ce` FOREIGN KEY (`solar_id`) REFERENCES `django_celery_beat_solarschedule` (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `django_celery_beat_periodictasks` (
  `ident` smallint(6) NOT NULL,
  `last_update` datetime(6) NOT NULL,
  PRIMARY KEY (`ident`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `django_celery_beat_solarschedule` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `event` varchar(24) NOT NULL,
  `latitude` decimal(9,6) NOT NULL,
  `longitude` decimal(9,6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `django_celery_beat_solar_event_latitude_longitude_ba64999a_uniq` (`event`,`latitude`,`longitude`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `django_content_type` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `app_label` varchar(100) NOT NULL,
  `model` varchar(100) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `django_content_type_app_label_model_76bd3d3b_uniq` (`app_label`,`model`)
) ENGINE=InnoDB AUTO_INCREMENT=74 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (1, 'admin', 'logentry');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (2, 'auth', 'permission');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (3, 'auth', 'group');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (4, 'auth', 'user');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (5, 'contenttypes', 'contenttype');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (6, 'sessions', 'session');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (7, 'ems', 'consumergroup');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (8, 'ems', 'partition');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (9, 'ems', 'stressrun');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (10, 'ems', 'apitoken');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (11, 'ems', 'checkendpoint');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (12, 'ems', 'deadmessage');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (13, 'ems', 'move');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (14, 'ems', 'delivery');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (15, 'ems', 'cursor');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (16, 'ems', 'preparedrow');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (17, 'ems', 'ratebucket');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (18, 'ems', 'redrive');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (19, 'ems', 'retrymessage');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (20, 'ems', 'rewind');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (21, 'ems', 'step');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (22, 'ems', 'systemconfig');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (23, 'ems', 'topic');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (24, 'ems', 'reader');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (25, 'ems', 'dedupkey');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (26, 'ems', 'apiright');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (27, 'ems', 'consumer');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (28, 'ems', 'keybucket');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (29, 'ems', 'letteredit');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (30, 'ems', 'message');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (31, 'ems', 'keyentry');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (32, 'ems', 'heldkey');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (33, 'ems_monitoring', 'alarm');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (34, 'ems_monitoring', 'alarmchannel');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (35, 'ems_monitoring', 'alarmnotification');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (36, 'ems_monitoring', 'alarmrule');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (37, 'ems_monitoring', 'archivedday');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (38, 'ems_monitoring', 'auditfinding');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (39, 'ems_monitoring', 'auditplace');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (40, 'ems_monitoring', 'backloglevel');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (41, 'ems_monitoring', 'consumption');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (42, 'ems_monitoring', 'consumptionlevel');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (43, 'ems_monitoring', 'errorclass');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (44, 'ems_monitoring', 'errorlevel');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (45, 'ems_monitoring', 'groupsample');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (46, 'ems_monitoring', 'hotkey');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (47, 'ems_monitoring', 'lakefile');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (48, 'ems_monitoring', 'lakeposition');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (49, 'ems_monitoring', 'latency');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (50, 'ems_monitoring', 'latencylevel');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (51, 'ems_monitoring', 'ledgerentry');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (52, 'ems_monitoring', 'mark');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (53, 'ems_monitoring', 'opendelivery');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (54, 'ems_monitoring', 'overview');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (55, 'ems_monitoring', 'partitionsample');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (56, 'ems_monitoring', 'position');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (57, 'ems_monitoring', 'replayedmessage');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (58, 'ems_monitoring', 'run');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (59, 'ems_monitoring', 'stagedmessage');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (60, 'ems_monitoring', 'traffic');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (61, 'ems_monitoring', 'trafficlevel');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (62, 'hostapp', 'order');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (63, 'hostapp', 'handled');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (64, 'ems_tasks', 'taskbatch');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (65, 'ems_tasks', 'taskschedule');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (66, 'ems_tasks', 'taskslot');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (67, 'ems_tasks', 'taskrun');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (68, 'django_celery_beat', 'solarschedule');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (69, 'django_celery_beat', 'intervalschedule');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (70, 'django_celery_beat', 'clockedschedule');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (71, 'django_celery_beat', 'crontabschedule');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (72, 'django_celery_beat', 'periodictasks');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (73, 'django_celery_beat', 'periodictask');
CREATE TABLE `django_migrations` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `app` varchar(255) NOT NULL,
  `name` varchar(255) NOT NULL,
  `applied` datetime(6) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=22 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (1, 'contenttypes', '0001_initial', '2026-11-24 22:27:02.484782');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (2, 'auth', '0001_initial', '2026-11-24 22:27:04.354877');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (3, 'admin', '0001_initial', '2026-11-24 22:27:04.722760');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (4, 'admin', '0002_logentry_remove_auto_add', '2026-11-24 22:27:04.861270');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (5, 'admin', '0003_logentry_add_action_flag_choices', '2026-11-24 22:27:04.981079');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (6, 'contenttypes', '0002_remove_content_type_name', '2026-11-24 22:27:05.854037');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (7, 'auth', '0002_alter_permission_name_max_length', '2026-11-24 22:27:06.142228');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (8, 'auth', '0003_alter_user_email_max_length', '2026-11-24 22:27:06.370495');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (9, 'auth', '0004_alter_user_username_opts', '2026-11-24 22:27:06.529032');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (10, 'auth', '0005_alter_user_last_login_null', '2026-11-24 22:27:06.791010');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (11, 'auth', '0006_require_contenttypes_0002', '2026-11-24 22:27:06.803167');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (12, 'auth', '0007_alter_validators_add_error_messages', '2026-11-24 22:27:06.992359');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (13, 'auth', '0008_alter_user_username_max_length', '2026-11-24 22:27:07.317460');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (14, 'auth', '0009_alter_user_last_name_max_length', '2026-11-24 22:27:07.525853');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (15, 'auth', '0010_alter_group_name_max_length', '2026-11-24 22:27:07.768299');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (16, 'auth', '0011_update_proxy_permissions', '2026-11-24 22:27:08.370912');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (17, 'auth', '0012_alter_user_first_name_max_length', '2026-11-24 22:27:08.609394');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (18, 'ems', '0001_initial', '2026-11-24 22:27:33.043966');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (19, 'ems_monitoring', '0001_initial', '2026-11-24 22:27:56.984816');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (20, 'ems_tasks', '0001_tasks', '2026-11-24 22:27:58.109456');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (21, 'sessions', '0001_initial', '2026-11-24 22:27:58.360322');
CREATE TABLE `django_session` (
  `session_key` varchar(40) NOT NULL,
  `session_data` longtext NOT NULL,
  `expire_date` datetime(6) NOT NULL,
  PRIMARY KEY (`session_key`),
  KEY `django_session_expire_date_a5c62663` (`expire_date`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `ems_api_right` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `verb` varchar(8) NOT NULL,
  `pattern` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `token_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_api_right_once` (`token_id`,`verb`,`pattern`),
  CONSTRAINT `ems_api_right_token_id_bb981287_fk_ems_api_token_id` FOREIGN KEY (`token_id`) REFERENCES `ems_api_token` (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_api_right` (`id`, `verb`, `pattern`, `token_id`) VALUES (1, 'send', 'orders', 1);
CREATE TABLE `ems_api_token` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `name` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `prefix` varchar(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `hash` binary(32) NOT NULL,
  `created_by` varchar(255) NOT NULL,
  `owner` varchar(64) NOT NULL,
  `created_at` datetime(6) NOT NULL,
  `expires_at` datetime(6) DEFAULT NULL,
  `last_used_at` datetime(6) DEFAULT NULL,
  `revoked_at` datetime(6) DEFAULT NULL,
  `max_rate` int(10) unsigned DEFAULT NULL CHECK (`max_rate` >= 0),
  `max_holds` int(10) unsigned NOT NULL CHECK (`max_holds` >= 0),
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_api_token_prefix` (`prefix`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_api_token` (`id`, `name`, `prefix`, `hash`, `created_by`, `owner`, `created_at`, `expires_at`, `last_used_at`, `revoked_at`, `max_rate`, `max_holds`) VALUES (1, 'shop', '9lnmud1l', 0xe31482567970021fcb70f4cbbba9e79a3f168528aac6f7c68e23ea4dc5689aeb, 'ann', '', '2026-11-24 22:28:08.942570', NULL, NULL, NULL, NULL, 16);
CREATE TABLE `ems_check_endpoint` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `name` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `url` varchar(1000) NOT NULL,
  `dialect` varchar(12) NOT NULL,
  `secret` varchar(255) NOT NULL,
  `timeout_seconds` int(10) unsigned DEFAULT NULL CHECK (`timeout_seconds` >= 0),
  `allow_private` tinyint(1) NOT NULL,
  `enabled` tinyint(1) NOT NULL,
  `failures` int(10) unsigned NOT NULL CHECK (`failures` >= 0),
  `paused_until` datetime(6) DEFAULT NULL,
  `last_error` varchar(500) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_check_endpoint_name` (`name`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_check_endpoint` (`id`, `name`, `url`, `dialect`, `secret`, `timeout_seconds`, `allow_private`, `enabled`, `failures`, `paused_until`, `last_error`) VALUES (1, 'shop', 'https://example.com/x', 'ems', 's3cret-of-it', NULL, 0, 1, 0, NULL, '');
CREATE TABLE `ems_client` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `client_id` varchar(190) NOT NULL,
  `lease_until` datetime(6) NOT NULL,
  `started_at` datetime(6) NOT NULL,
  `locked_on` varchar(128) NOT NULL DEFAULT '',
  `away_since` datetime(6) DEFAULT NULL,
  `away_reason` varchar(255) NOT NULL DEFAULT '',
  `group_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_client_group` (`client_id`,`group_id`),
  KEY `ems_client_group_id_e6474bfa_fk_ems_group_id` (`group_id`),
  KEY `ems_client_lease` (`lease_until`),
  CONSTRAINT `ems_client_group_id_e6474bfa_fk_ems_group_id` FOREIGN KEY (`group_id`) REFERENCES `ems_group` (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_client` (`id`, `client_id`, `lease_until`, `started_at`, `locked_on`, `away_since`, `away_reason`, `group_id`) VALUES (1, '10.0.0.1@7@abc', '2026-11-24 23:28:08.495285', '2026-11-24 22:28:08.495285', '', NULL, '', 1);
CREATE TABLE `ems_cursor` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `replay` int(10) unsigned NOT NULL CHECK (`replay` >= 0),
  `next_offset` bigint(20) NOT NULL,
  `start_offset` bigint(20) NOT NULL,
  `previous_offset` bigint(20) DEFAULT NULL,
  `reset_at` datetime(6) DEFAULT NULL,
  `stop_offset` bigint(20) DEFAULT NULL,
  `log_offset` bigint(20) NOT NULL DEFAULT 0,
  `open_delivery` bigint(20) DEFAULT NULL,
  `attempt` int(10) unsigned NOT NULL CHECK (`attempt` >= 0),
  `blocked_until` datetime(6) DEFAULT NULL,
  `blocked_at` datetime(6) DEFAULT NULL,
  `has_held_keys` tinyint(1) NOT NULL DEFAULT 0,
  `last_error` varchar(1000) NOT NULL DEFAULT '',
  `alone` tinyint(1) NOT NULL DEFAULT 0,
  `group_id` bigint(20) NOT NULL,
  `partition_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_cursor_place` (`group_id`,`partition_id`,`replay`),
  KEY `ems_cursor_partition_id_db242ea9` (`partition_id`),
  CONSTRAINT `ems_cursor_group_id_611a7f31_fk_ems_group_id` FOREIGN KEY (`group_id`) REFERENCES `ems_group` (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=5 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_cursor` (`id`, `replay`, `next_offset`, `start_offset`, `previous_offset`, `reset_at`, `stop_offset`, `log_offset`, `open_delivery`, `attempt`, `blocked_until`, `blocked_at`, `has_held_keys`, `last_error`, `alone`, `group_id`, `partition_id`) VALUES (1, 0, 5, 0, NULL, NULL, NULL, 0, NULL, 1, NULL, NULL, 0, '', 0, 1, 1);
INSERT INTO `ems_cursor` (`id`, `replay`, `next_offset`, `start_offset`, `previous_offset`, `reset_at`, `stop_offset`, `log_offset`, `open_delivery`, `attempt`, `blocked_until`, `blocked_at`, `has_held_keys`, `last_error`, `alone`, `group_id`, `partition_id`) VALUES (2, 0, 5, 0, NULL, NULL, NULL, 0, NULL, 1, NULL, NULL, 0, '', 0, 2, 1);
INSERT INTO `ems_cursor` (`id`, `replay`, `next_offset`, `start_offset`, `previous_offset`, `reset_at`, `stop_offset`, `log_offset`, `open_delivery`, `attempt`, `blocked_until`, `blocked_at`, `has_held_keys`, `last_error`, `alone`, `group_id`, `partition_id`) VALUES (3, 0, 5, 0, NULL, NULL, NULL, 0, NULL, 1, NULL, NULL, 0, '', 0, 3, 1);
INSERT INTO `ems_cursor` (`id`, `replay`, `next_offset`, `start_offset`, `previous_offset`, `reset_at`, `stop_offset`, `log_offset`, `open_delivery`, `attempt`, `blocked_until`, `blocked_at`, `has_held_keys`, `last_error`, `alone`, `group_id`, `partition_id`) VALUES (4, 0, 10, 0, NULL, NULL, NULL, 0, NULL, 1, NULL, NULL, 0, '', 0, 4, 2);
CREATE TABLE `ems_dead_edit` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `who` varchar(255) NOT NULL,
  `at` datetime(6) NOT NULL,
  `body` longblob NOT NULL,
  `body_type` varchar(5) NOT NULL,
  `size` int(10) unsigned NOT NULL CHECK (`size` >= 0),
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `tag` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `headers` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`headers`)),
  `group_id` bigint(20) NOT NULL,
  `letter_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_edit_letter` (`letter_id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_dead_edit` (`id`, `who`, `at`, `body`, `body_type`, `size`, `key`, `tag`, `headers`, `group_id`, `letter_id`) VALUES (1, 'ann', '2026-11-24 22:28:08.769761', 0x7468652d626f64792d6f662d7468652d6d657373616765, 'text', 9, NULL, '', NULL, 2, 1);
CREATE TABLE `ems_dead_msg` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `offset` bigint(20) NOT NULL,
  `message_id` bigint(20) NOT NULL,
  `body` longblob NOT NULL,
  `body_type` varchar(5) NOT NULL,
  `size` int(10) unsigned NOT NULL CHECK (`size` >= 0),
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `tag` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `headers` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`headers`)),
  `producer` varchar(190) NOT NULL,
  `sent_at` datetime(6) NOT NULL,
  `attempts` int(10) unsigned NOT NULL CHECK (`attempts` >= 0),
  `error_class` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `error` longtext NOT NULL,
  `traceback` longtext NOT NULL,
  `died_at` datetime(6) NOT NULL,
  `redriven_at` datetime(6) DEFAULT NULL,
  `edited_at` datetime(6) DEFAULT NULL,
  `group_id` bigint(20) NOT NULL,
  `partition_id` bigint(20) NOT NULL,
  `topic_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_dead_place` (`group_id`,`partition_id`,`offset`),
  KEY `ems_dead_waiting` (`group_id`,`redriven_at`),
  KEY `ems_dead_died` (`died_at`),
  KEY `ems_dead_msg_topic_id_ba655418` (`topic_id`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_dead_msg` (`id`, `offset`, `message_id`, `body`, `body_type`, `size`, `key`, `tag`, `headers`, `producer`, `sent_at`, `attempts`, `error_class`, `error`, `traceback`, `died_at`, `redriven_at`, `edited_at`, `group_id`, `partition_id`, `topic_id`) VALUES (1, 0, 1, 0x7b226e6f7465223a227468652d626f64792d6f662d7468652d6d657373616765203c7363726970743e616c6572742831293c2f7363726970743e227d, 'json', 60, 'key-0', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', '192.0.2.2@12708@MainThread', '2026-11-24 22:28:04.898628', 1, 'ValueError', 'no account for <script>alert(1)</script>', 'Traceback (most recent call last):\n  File "/srv/shop/streams/consume/calling.py", line 83, in failures\n    return self.called(messages)\n           ^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/streams/consume/calling.py", line 98, in called\n    self._timed(message)\n  File "/srv/shop/streams/consume/calling.py", line 116, in _timed\n    returned = self._handler(argument)\n               ^^^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/streams/consume/calling.py", line 145, in _run\n    returned = registration.handler(argument)\n               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/tests/admin/world.py", line 110, in bill\n    raise ValueError(f"no account for {XSS}")\nValueError: no account for <script>alert(1)</script>\n', '2026-11-24 22:28:06.349146', NULL, NULL, 2, 1, 1);
INSERT INTO `ems_dead_msg` (`id`, `offset`, `message_id`, `body`, `body_type`, `size`, `key`, `tag`, `headers`, `producer`, `sent_at`, `attempts`, `error_class`, `error`, `traceback`, `died_at`, `redriven_at`, `edited_at`, `group_id`, `partition_id`, `topic_id`) VALUES (2, 1, 2, 0x7b226e223a317d, 'json', 7, 'key-1', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', '192.0.2.2@12708@MainThread', '2026-11-24 22:28:04.914440', 1, 'ValueError', 'no account for <script>alert(1)</script>', 'Traceback (most recent call last):\n  File "/srv/shop/streams/consume/calling.py", line 83, in failures\n    return self.called(messages)\n           ^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/streams/consume/calling.py", line 98, in called\n    self._timed(message)\n  File "/srv/shop/streams/consume/calling.py", line 116, in _timed\n    returned = self._handler(argument)\n               ^^^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/streams/consume/calling.py", line 145, in _run\n    returned = registration.handler(argument)\n               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/tests/admin/world.py", line 110, in bill\n    raise ValueError(f"no account for {XSS}")\nValueError: no account for <script>alert(1)</script>\n', '2026-11-24 22:28:06.583574', NULL, NULL, 2, 1, 1);
INSERT INTO `ems_dead_msg` (`id`, `offset`, `message_id`, `body`, `body_type`, `size`, `key`, `tag`, `headers`, `producer`, `sent_at`, `attempts`, `error_class`, `error`, `traceback`, `died_at`, `redriven_at`, `edited_at`, `group_id`, `partition_id`, `topic_id`) VALUES (3, 2, 3, 0x74657874, 'text', 4, 'key-2', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', '192.0.2.2@12708@MainThread', '2026-11-24 22:28:04.920935', 1, 'ValueError', 'no account for <script>alert(1)</script>', 'Traceback (most recent call last):\n  File "/srv/shop/streams/consume/calling.py", line 83, in failures\n    return self.called(messages)\n           ^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/streams/consume/calling.py", line 98, in called\n    self._timed(message)\n  File "/srv/shop/streams/consume/calling.py", line 116, in _timed\n    returned = self._handler(argument)\n               ^^^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/streams/consume/calling.py", line 145, in _run\n    returned = registration.handler(argument)\n               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/tests/admin/world.py", line 110, in bill\n    raise ValueError(f"no account for {XSS}")\nValueError: no account for <script>alert(1)</script>\n', '2026-11-24 22:28:07.020706', NULL, NULL, 2, 1, 1);
CREATE TABLE `ems_dedup` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `key_hash` binary(32) NOT NULL,
  `message_id` bigint(20) DEFAULT NULL,
  `partition` int(10) unsigned NOT NULL CHECK (`partition` >= 0),
  `expires_at` datetime(6) NOT NULL,
  `topic_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_dedup_key` (`topic_id`,`key_hash`),
  KEY `ems_dedup_expiry` (`expires_at`),
  KEY `ems_dedup_message` (`message_id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_dedup` (`id`, `key_hash`, `message_id`, `partition`, `expires_at`, `topic_id`) VALUES (1, 0x1d9283d848ea941ace1fe0d2378ef8b70056a0d4d1648b95a322d90163e78285, 6, 0, '2026-11-24 22:38:08.442717', 1);
CREATE TABLE `ems_group` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `name` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `mode` varchar(9) NOT NULL,
  `ordered` tinyint(1) NOT NULL,
  `by_key` tinyint(1) NOT NULL DEFAULT 0,
  `hold_dead` tinyint(1) NOT NULL DEFAULT 0,
  `tags` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`tags`)),
  `rate_in_code` varchar(48) NOT NULL DEFAULT '',
  `start` varchar(32) NOT NULL,
  `max_retries` int(10) unsigned DEFAULT NULL CHECK (`max_retries` >= 0),
  `consume_timeout` int(10) unsigned DEFAULT NULL CHECK (`consume_timeout` >= 0),
  `batch` int(10) unsigned DEFAULT NULL CHECK (`batch` >= 0),
  `retry_policy` varchar(255) NOT NULL DEFAULT '',
  `rate` varchar(48) NOT NULL DEFAULT '',
  `paused` tinyint(1) NOT NULL,
  `paused_at` datetime(6) DEFAULT NULL,
  `created_at` datetime(6) NOT NULL,
  `topic_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_group_name` (`topic_id`,`name`),
  CONSTRAINT `ems_group_topic_id_d0f93e29_fk_ems_topic_id` FOREIGN KEY (`topic_id`) REFERENCES `ems_topic` (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=5 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_group` (`id`, `name`, `mode`, `ordered`, `by_key`, `hold_dead`, `tags`, `rate_in_code`, `start`, `max_retries`, `consume_timeout`, `batch`, `retry_policy`, `rate`, `paused`, `paused_at`, `created_at`, `topic_id`) VALUES (1, 'mail', 'cluster', 0, 0, 0, NULL, '', 'earliest', NULL, NULL, NULL, '', '', 0, NULL, '2026-11-24 22:28:05.312744', 1);
INSERT INTO `ems_group` (`id`, `name`, `mode`, `ordered`, `by_key`, `hold_dead`, `tags`, `rate_in_code`, `start`, `max_retries`, `consume_timeout`, `batch`, `retry_policy`, `rate`, `paused`, `paused_at`, `created_at`, `topic_id`) VALUES (2, 'billing', 'cluster', 0, 0, 0, NULL, '', 'earliest', NULL, NULL, NULL, '', '', 0, NULL, '2026-11-24 22:28:05.466107', 1);
INSERT INTO `ems_group` (`id`, `name`, `mode`, `ordered`, `by_key`, `hold_dead`, `tags`, `rate_in_code`, `start`, `max_retries`, `consume_timeout`, `batch`, `retry_policy`, `rate`, `paused`, `paused_at`, `created_at`, `topic_id`) VALUES (3, 'slow', 'cluster', 0, 0, 0, NULL, '', 'earliest', NULL, NULL, NULL, '', '', 0, NULL, '2026-11-24 22:28:05.785079', 1);
INSERT INTO `ems_group` (`id`, `name`, `mode`, `ordered`, `by_key`, `hold_dead`, `tags`, `rate_in_code`, `start`, `max_retries`, `consume_timeout`, `batch`, `retry_policy`, `rate`, `paused`, `paused_at`, `created_at`, `topic_id`) VALUES (4, 'counter', 'cluster', 0, 0, 0, NULL, '', 'earliest', NULL, NULL, NULL, '', '', 0, NULL, '2026-11-24 22:28:10.972573', 2);
CREATE TABLE `ems_held_key` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `key_hash` bigint(20) NOT NULL,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `head_offset` bigint(20) NOT NULL,
  `dead` tinyint(1) NOT NULL DEFAULT 0,
  `held_at` datetime(6) NOT NULL,
  `group_id` bigint(20) NOT NULL,
  `partition_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_held_key_place` (`group_id`,`partition_id`,`key_hash`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_held_key` (`id`, `key_hash`, `key`, `head_offset`, `dead`, `held_at`, `group_id`, `partition_id`) VALUES (1, 1, '<script>alert(1)</script>', 3, 0, '2026-11-24 22:28:09.398163', 3, 1);
CREATE TABLE `ems_key` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `offset` bigint(20) NOT NULL,
  `partition_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_key_place` (`partition_id`,`offset`),
  KEY `ems_key_search` (`partition_id`,`key`,`offset`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_key` (`id`, `key`, `offset`, `partition_id`) VALUES (1, 'key-0', 0, 1);
CREATE TABLE `ems_monitoring_alarm` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `rule` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `metric` varchar(32) NOT NULL,
  `subject` varchar(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `topic` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `group` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `slot` smallint(5) unsigned DEFAULT NULL CHECK (`slot` >= 0),
  `severity` varchar(8) NOT NULL,
  `state` varchar(12) NOT NULL,
  `value` double NOT NULL,
  `threshold` double NOT NULL,
  `detail` varchar(500) NOT NULL,
  `runbook` varchar(500) NOT NULL,
  `since` datetime(6) NOT NULL,
  `fired_at` datetime(6) DEFAULT NULL,
  `told_at` datetime(6) DEFAULT NULL,
  `acknowledged_at` datetime(6) DEFAULT NULL,
  `acknowledged_by` varchar(190) NOT NULL,
  `note` varchar(500) NOT NULL,
  `resolved_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_alarm_unresolved` (`rule`,`subject`,`slot`),
  KEY `ems_alarm_slot` (`slot`,`state`),
  KEY `ems_alarm_resolved` (`resolved_at`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_alarm` (`id`, `rule`, `metric`, `subject`, `topic`, `group`, `slot`, `severity`, `state`, `value`, `threshold`, `detail`, `runbook`, `since`, `fired_at`, `told_at`, `acknowledged_at`, `acknowledged_by`, `note`, `resolved_at`) VALUES (1, 'x', 'x', '', '', '', 0, 'x', 'pending', 0.0, 0.0, '', '', '2026-11-24 22:28:12.029751', '2026-11-24 22:28:12.027547', '2026-11-24 22:28:12.027578', '2026-11-24 22:28:12.027586', '', '', '2026-11-24 22:28:12.027602');
CREATE TABLE `ems_monitoring_alarm_channel` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `name` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `kind` varchar(8) NOT NULL,
  `enabled` tinyint(1) NOT NULL,
  `recipients` longtext NOT NULL,
  `url` varchar(1000) NOT NULL,
  `secret` varchar(255) NOT NULL,
  `allow_private` tinyint(1) NOT NULL,
  `last_sent_at` datetime(6) DEFAULT NULL,
  `last_failed_at` datetime(6) DEFAULT NULL,
  `last_error` varchar(500) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_alarm_channel_name` (`name`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_alarm_channel` (`id`, `name`, `kind`, `enabled`, `recipients`, `url`, `secret`, `allow_private`, `last_sent_at`, `last_failed_at`, `last_error`) VALUES (1, 'x', 'x', 1, '', '', '', 0, '2026-11-24 22:28:12.151097', '2026-11-24 22:28:12.151123', '');
CREATE TABLE `ems_monitoring_alarm_notification` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `uid` varchar(32) NOT NULL,
  `alarm_id` bigint(20) DEFAULT NULL,
  `channel_id` bigint(20) NOT NULL,
  `event` varchar(8) NOT NULL,
  `state` varchar(8) NOT NULL,
  `attempts` int(10) unsigned NOT NULL CHECK (`attempts` >= 0),
  `created_at` datetime(6) NOT NULL,
  `due_at` datetime(6) NOT NULL,
  `sent_at` datetime(6) DEFAULT NULL,
  `error` varchar(500) NOT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_notification_due` (`state`,`due_at`),
  KEY `ems_notification_order` (`alarm_id`,`channel_id`,`state`),
  KEY `ems_notification_created` (`created_at`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_alarm_notification` (`id`, `uid`, `alarm_id`, `channel_id`, `event`, `state`, `attempts`, `created_at`, `due_at`, `sent_at`, `error`) VALUES (1, 'b4a175c135618b0a943b7311eea381fb', 1, 1, 'x', 'waiting', 0, '2026-11-24 22:28:12.247694', '2026-11-24 22:28:12.247694', '2026-11-24 22:28:12.242147', '');
CREATE TABLE `ems_monitoring_alarm_rule` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `name` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `metric` varchar(32) NOT NULL,
  `enabled` tinyint(1) DEFAULT NULL,
  `topic` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `group` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `operator` varchar(1) NOT NULL,
  `threshold` double DEFAULT NULL,
  `for_seconds` int(10) unsigned DEFAULT NULL CHECK (`for_seconds` >= 0),
  `severity` varchar(8) NOT NULL,
  `remind_hours` int(10) unsigned DEFAULT NULL CHECK (`remind_hours` >= 0),
  `muted_until` datetime(6) DEFAULT NULL,
  `runbook` varchar(500) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_alarm_rule_name` (`name`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_alarm_rule` (`id`, `name`, `metric`, `enabled`, `topic`, `group`, `operator`, `threshold`, `for_seconds`, `severity`, `remind_hours`, `muted_until`, `runbook`) VALUES (1, 'x', 'x', 0, '', '', '>', 0.0, 1, '', 1, '2026-11-24 22:28:12.319154', '');
CREATE TABLE `ems_monitoring_alarm_rule_channel` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `alarmrule_id` bigint(20) NOT NULL,
  `alarmchannel_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_monitoring_alarm_rul_alarmrule_id_alarmchanne_9540dc7a_uniq` (`alarmrule_id`,`alarmchannel_id`),
  KEY `ems_monitoring_alarm_alarmchannel_id_e1c1d137_fk_ems_monit` (`alarmchannel_id`),
  CONSTRAINT `ems_monitoring_alarm_alarmchannel_id_e1c1d137_fk_ems_monit` FOREIGN KEY (`alarmchannel_id`) REFERENCES `ems_monitoring_alarm_channel` (`id`),
  CONSTRAINT `ems_monitoring_alarm_alarmrule_id_4a9fb5f3_fk_ems_monit` FOREIGN KEY (`alarmrule_id`) REFERENCES `ems_monitoring_alarm_rule` (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_alarm_rule_channel` (`id`, `alarmrule_id`, `alarmchannel_id`) VALUES (1, 1, 1);
CREATE TABLE `ems_monitoring_archive` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `partition_id` bigint(20) NOT NULL,
  `day` date NOT NULL,
  `topic` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `number` int(10) unsigned NOT NULL CHECK (`number` >= 0),
  `first_offset` bigint(20) NOT NULL,
  `end_offset` bigint(20) NOT NULL,
  `messages` bigint(20) NOT NULL,
  `bytes` bigint(20) NOT NULL,
  `hash` varchar(40) NOT NULL,
  `path` varchar(1000) NOT NULL,
  `archived_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_archive_day` (`partition_id`,`day`),
  KEY `ems_archive_topic` (`topic`,`day`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_archive` (`id`, `partition_id`, `day`, `topic`, `number`, `first_offset`, `end_offset`, `messages`, `bytes`, `hash`, `path`, `archived_at`) VALUES (1, 1, '2026-11-24', 'x', 1, 1, 1, 1, 1, 'x', 'x', '2026-11-24 22:28:12.415431');
CREATE TABLE `ems_monitoring_audit_place` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `namespace` varchar(16) NOT NULL,
  `stage` varchar(16) NOT NULL,
  `row` bigint(20) NOT NULL,
  `offset` bigint(20) NOT NULL,
  `seen_offset` bigint(20) NOT NULL,
  `looked_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_audit_place_row` (`namespace`,`stage`,`row`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_audit_place` (`id`, `namespace`, `stage`, `row`, `offset`, `seen_offset`, `looked_at`) VALUES (1, '', 'x', 1, 0, 0, '2026-11-24 22:28:12.073776');
CREATE TABLE `ems_monitoring_backlog_level` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `grain` smallint(5) unsigned NOT NULL CHECK (`grain` >= 0),
  `start` datetime(6) NOT NULL,
  `group_id` bigint(20) NOT NULL,
  `samples` int(10) unsigned NOT NULL CHECK (`samples` >= 0),
  `behind` bigint(20) DEFAULT NULL,
  `least` bigint(20) DEFAULT NULL,
  `waiting` bigint(20) NOT NULL,
  `dead` bigint(20) NOT NULL,
  `age_seconds` double DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_backlog_level_place` (`grain`,`start`,`group_id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_backlog_level` (`id`, `grain`, `start`, `group_id`, `samples`, `behind`, `least`, `waiting`, `dead`, `age_seconds`) VALUES (1, 1, '2026-11-24 22:28:13.188609', 1, 1, 1, 1, 1, 1, 0.0);
CREATE TABLE `ems_monitoring_consumption` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `group_id` bigint(20) NOT NULL,
  `minute` datetime(6) NOT NULL,
  `client_id` varchar(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `thread` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `deliveries` bigint(20) NOT NULL,
  `consumed` bigint(20) NOT NULL,
  `failed` bigint(20) NOT NULL,
  `retried` bigint(20) NOT NULL,
  `dead` bigint(20) NOT NULL,
  `lost` bigint(20) NOT NULL,
  `missing` bigint(20) NOT NULL,
  `passed` bigint(20) NOT NULL,
  `busy_seconds` double NOT NULL,
  `longest_seconds` double NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_consumption_place` (`group_id`,`minute`,`client_id`,`thread`),
  KEY `ems_consumption_minute` (`minute`,`group_id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_consumption` (`id`, `group_id`, `minute`, `client_id`, `thread`, `deliveries`, `consumed`, `failed`, `retried`, `dead`, `lost`, `missing`, `passed`, `busy_seconds`, `longest_seconds`) VALUES (1, 1, '2026-11-24 22:28:12.625568', 'x', 'x', 1, 1, 1, 1, 1, 1, 1, 1, 0.0, 0.0);
CREATE TABLE `ems_monitoring_consumption_level` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `grain` smallint(5) unsigned NOT NULL CHECK (`grain` >= 0),
  `start` datetime(6) NOT NULL,
  `group_id` bigint(20) NOT NULL,
  `client_id` varchar(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `thread` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `deliveries` bigint(20) NOT NULL,
  `consumed` bigint(20) NOT NULL,
  `failed` bigint(20) NOT NULL,
  `retried` bigint(20) NOT NULL,
  `dead` bigint(20) NOT NULL,
  `lost` bigint(20) NOT NULL,
  `missing` bigint(20) NOT NULL,
  `passed` bigint(20) NOT NULL,
  `busy_seconds` double NOT NULL,
  `longest_seconds` double NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_consumption_level_place` (`grain`,`start`,`group_id`,`client_id`,`thread`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_consumption_level` (`id`, `grain`, `start`, `group_id`, `client_id`, `thread`, `deliveries`, `consumed`, `failed`, `retried`, `dead`, `lost`, `missing`, `passed`, `busy_seconds`, `longest_seconds`) VALUES (1, 1, '2026-11-24 22:28:13.011091', 1, 'x', 'x', 1, 1, 1, 1, 1, 1, 1, 1, 0.0, 0.0);
CREATE TABLE `ems_monitoring_error` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `group_id` bigint(20) NOT NULL,
  `minute` datetime(6) NOT NULL,
  `error_class` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `failed` bigint(20) NOT NULL,
  `dead` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_error_place` (`group_id`,`minute`,`error_class`),
  KEY `ems_error_minute` (`minute`,`group_id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_error` (`id`, `group_id`, `minute`, `error_class`, `failed`, `dead`) VALUES (1, 1, '2026-11-24 22:28:12.717486', 'x', 1, 1);
CREATE TABLE `ems_monitoring_error_level` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `grain` smallint(5) unsigned NOT NULL CHECK (`grain` >= 0),
  `start` datetime(6) NOT NULL,
  `group_id` bigint(20) NOT NULL,
  `error_class` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `failed` bigint(20) NOT NULL,
  `dead` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_error_level_place` (`grain`,`start`,`group_id`,`error_class`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_error_level` (`id`, `grain`, `start`, `group_id`, `error_class`, `failed`, `dead`) VALUES (1, 1, '2026-11-24 22:28:13.129333', 1, 'x', 1, 1);
CREATE TABLE `ems_monitoring_finding` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `namespace` varchar(16) NOT NULL,
  `digest` binary(32) NOT NULL,
  `source` varchar(9) NOT NULL,
  `kind` varchar(32) NOT NULL,
  `place` varchar(300) NOT NULL,
  `detail` varchar(500) NOT NULL,
  `count` int(10) unsigned NOT NULL CHECK (`count` >= 0),
  `found_at` datetime(6) NOT NULL,
  `seen_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_finding_digest` (`namespace`,`digest`),
  KEY `ems_finding_seen` (`seen_at`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_finding` (`id`, `namespace`, `digest`, `source`, `kind`, `place`, `detail`, `count`, `found_at`, `seen_at`) VALUES (1, '', 0x00ff000000000000000000000000000000000000000000000000000000000000, 'audit', 'x', 'x', 'x', 1, '2026-11-24 22:28:12.108649', '2026-11-24 22:28:12.108649');
CREATE TABLE `ems_monitoring_hot_key` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `topic_id` bigint(20) NOT NULL,
  `hour` datetime(6) NOT NULL,
  `place` int(10) unsigned NOT NULL CHECK (`place` >= 0),
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `messages` bigint(20) NOT NULL,
  `bytes` bigint(20) NOT NULL,
  `share` double NOT NULL,
  `total` bigint(20) NOT NULL DEFAULT 0,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_hot_key_place` (`topic_id`,`hour`,`place`),
  KEY `ems_hot_key_hour` (`hour`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_hot_key` (`id`, `topic_id`, `hour`, `place`, `key`, `messages`, `bytes`, `share`, `total`) VALUES (1, 1, '2026-11-24 22:28:12.794016', 1, 'x', 1, 1, 0.0, 0);
CREATE TABLE `ems_monitoring_lake` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `topic` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `day` date NOT NULL,
  `path` varchar(1000) NOT NULL,
  `messages` bigint(20) NOT NULL,
  `bytes` bigint(20) NOT NULL,
  `size` bigint(20) NOT NULL,
  `version` int(10) unsigned NOT NULL CHECK (`version` >= 0),
  `added_at` datetime(6) NOT NULL,
  `retired_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_lake_day` (`topic`,`day`),
  KEY `ems_lake_retired` (`retired_at`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_lake` (`id`, `topic`, `day`, `path`, `messages`, `bytes`, `size`, `version`, `added_at`, `retired_at`) VALUES (1, 'x', '2026-11-24', 'x', 1, 1, 1, 1, '2026-11-24 22:28:12.829146', '2026-11-24 22:28:12.823187');
CREATE TABLE `ems_monitoring_lake_position` (
  `partition_id` bigint(20) NOT NULL,
  `first_offset` bigint(20) NOT NULL,
  `next_offset` bigint(20) NOT NULL,
  PRIMARY KEY (`partition_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_lake_position` (`partition_id`, `first_offset`, `next_offset`) VALUES (1, 1, 1);
CREATE TABLE `ems_monitoring_latency` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `group_id` bigint(20) NOT NULL,
  `minute` datetime(6) NOT NULL,
  `leg` varchar(9) NOT NULL,
  `messages` bigint(20) NOT NULL,
  `mean` double NOT NULL,
  `p50` double NOT NULL,
  `p95` double NOT NULL,
  `p99` double NOT NULL,
  `worst` double NOT NULL,
  `histogram` longtext NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_latency_place` (`group_id`,`minute`,`leg`),
  KEY `ems_latency_minute` (`minute`,`group_id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_latency` (`id`, `group_id`, `minute`, `leg`, `messages`, `mean`, `p50`, `p95`, `p99`, `worst`, `histogram`) VALUES (1, 1, '2026-11-24 22:28:12.935694', 'x', 1, 0.0, 0.0, 0.0, 0.0, 0.0, 'text');
CREATE TABLE `ems_monitoring_latency_level` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `grain` smallint(5) unsigned NOT NULL CHECK (`grain` >= 0),
  `start` datetime(6) NOT NULL,
  `group_id` bigint(20) NOT NULL,
  `leg` varchar(9) NOT NULL,
  `messages` bigint(20) NOT NULL,
  `mean` double NOT NULL,
  `worst` double NOT NULL,
  `histogram` longtext NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_latency_level_place` (`grain`,`start`,`group_id`,`leg`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_latency_level` (`id`, `grain`, `start`, `group_id`, `leg`, `messages`, `mean`, `worst`, `histogram`) VALUES (1, 1, '2026-11-24 22:28:13.074190', 1, 'x', 1, 0.0, 0.0, 'text');
CREATE TABLE `ems_monitoring_ledger` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `name` varchar(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `batch` bigint(20) NOT NULL,
  `done_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_ledger_name` (`name`,`batch`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_ledger` (`id`, `name`, `batch`, `done_at`) VALUES (1, 'x', 1, '2026-11-24 22:28:12.453946');
CREATE TABLE `ems_monitoring_mark` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `namespace` varchar(16) NOT NULL,
  `kind` varchar(16) NOT NULL,
  `at` datetime(6) NOT NULL,
  `until` datetime(6) NOT NULL,
  `topic_id` bigint(20) DEFAULT NULL,
  `groups` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (json_valid(`groups`)),
  `count` int(10) unsigned NOT NULL CHECK (`count` >= 0),
  `text` varchar(500) NOT NULL,
  `who` varchar(190) NOT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_mark_at` (`at`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_mark` (`id`, `namespace`, `kind`, `at`, `until`, `topic_id`, `groups`, `count`, `text`, `who`) VALUES (1, '', 'x', '2026-11-24 22:28:13.276423', '2026-11-24 22:28:13.276423', 1, '[]', 1, '', '');
CREATE TABLE `ems_monitoring_open` (
  `delivery_id` bigint(20) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`delivery_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_open` (`delivery_id`, `finished_at`) VALUES (1, '2026-11-24 22:28:13.306086');
CREATE TABLE `ems_monitoring_position` (
  `partition_id` bigint(20) NOT NULL,
  `open_offset` bigint(20) NOT NULL,
  `next_offset` bigint(20) NOT NULL,
  PRIMARY KEY (`partition_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_position` (`partition_id`, `open_offset`, `next_offset`) VALUES (1, 1, 1);
CREATE TABLE `ems_monitoring_replay` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `replay` varchar(32) NOT NULL,
  `source` int(10) unsigned NOT NULL CHECK (`source` >= 0),
  `offset` bigint(20) NOT NULL,
  `target` int(10) unsigned NOT NULL CHECK (`target` >= 0),
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `tag` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `headers` longtext DEFAULT NULL,
  `body` longblob NOT NULL,
  `body_type` varchar(5) NOT NULL,
  `size` int(10) unsigned NOT NULL CHECK (`size` >= 0),
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_replay_place` (`replay`,`source`,`offset`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_replay` (`id`, `replay`, `source`, `offset`, `target`, `key`, `tag`, `headers`, `body`, `body_type`, `size`) VALUES (1, 'x', 1, 1, 1, 'x', 'x', 'text', 0x00ff, 'x', 1);
CREATE TABLE `ems_monitoring_run` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `job` varchar(32) NOT NULL,
  `state` varchar(7) NOT NULL,
  `since` datetime(6) DEFAULT NULL,
  `until` datetime(6) DEFAULT NULL,
  `resume_at` datetime(6) DEFAULT NULL,
  `read` bigint(20) DEFAULT NULL,
  `rows` bigint(20) DEFAULT NULL,
  `missed` bigint(20) NOT NULL,
  `seconds` double DEFAULT NULL,
  `about` varchar(500) NOT NULL DEFAULT '',
  `error` longtext NOT NULL,
  `started_at` datetime(6) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_run_job` (`job`,`state`,`id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_run` (`id`, `job`, `state`, `since`, `until`, `resume_at`, `read`, `rows`, `missed`, `seconds`, `about`, `error`, `started_at`, `finished_at`) VALUES (1, 'x', 'running', '2026-11-24 22:28:13.363480', '2026-11-24 22:28:13.363505', '2026-11-24 22:28:13.363512', 1, 1, 0, 0.0, '', '', '2026-11-24 22:28:13.367269', '2026-11-24 22:28:13.363637');
CREATE TABLE `ems_monitoring_sample` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `minute` datetime(6) NOT NULL,
  `taken_at` datetime(6) NOT NULL,
  `grain` smallint(5) unsigned NOT NULL CHECK (`grain` >= 0),
  `partition_id` bigint(20) NOT NULL,
  `first_offset` bigint(20) NOT NULL,
  `next_offset` bigint(20) NOT NULL,
  `inbox` bigint(20) NOT NULL,
  `inbox_age_seconds` double DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_sample_place` (`partition_id`,`minute`),
  KEY `ems_sample_minute` (`grain`,`minute`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_sample` (`id`, `minute`, `taken_at`, `grain`, `partition_id`, `first_offset`, `next_offset`, `inbox`, `inbox_age_seconds`) VALUES (1, '2026-11-24 22:28:13.436270', '2026-11-24 22:28:13.436297', 1, 1, 1, 1, 1, 0.0);
CREATE TABLE `ems_monitoring_sample_group` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `minute` datetime(6) NOT NULL,
  `taken_at` datetime(6) NOT NULL,
  `grain` smallint(5) unsigned NOT NULL CHECK (`grain` >= 0),
  `group_id` bigint(20) NOT NULL,
  `behind` bigint(20) DEFAULT NULL,
  `open` bigint(20) NOT NULL,
  `waiting` bigint(20) NOT NULL,
  `dead` bigint(20) NOT NULL,
  `done` bigint(20) DEFAULT NULL,
  `consumers` int(10) unsigned NOT NULL CHECK (`consumers` >= 0),
  `blocked` int(10) unsigned NOT NULL CHECK (`blocked` >= 0),
  `age_seconds` double DEFAULT NULL,
  `reset_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_sample_group_place` (`group_id`,`minute`),
  KEY `ems_sample_group_minute` (`grain`,`minute`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_sample_group` (`id`, `minute`, `taken_at`, `grain`, `group_id`, `behind`, `open`, `waiting`, `dead`, `done`, `consumers`, `blocked`, `age_seconds`, `reset_at`) VALUES (1, '2026-11-24 22:28:13.502191', '2026-11-24 22:28:13.502219', 1, 1, 1, 1, 1, 1, 1, 1, 0, 0.0, '2026-11-24 22:28:13.510226');
CREATE TABLE `ems_monitoring_staged` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `mark` varchar(32) NOT NULL,
  `topic_id` bigint(20) NOT NULL,
  `partition_id` bigint(20) NOT NULL,
  `due_at` datetime(6) DEFAULT NULL,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `tag` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `headers` longtext DEFAULT NULL,
  `body` longblob NOT NULL,
  `body_type` varchar(5) NOT NULL,
  `size` int(10) unsigned NOT NULL CHECK (`size` >= 0),
  `dedup_hash` binary(32) DEFAULT NULL,
  `staged_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_staged_mark` (`mark`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_staged` (`id`, `mark`, `topic_id`, `partition_id`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `dedup_hash`, `staged_at`) VALUES (1, 'x', 1, 1, '2026-11-24 22:28:12.516101', 'x', 'x', 'text', 0x00ff, 'x', 1, 0x00ff000000000000000000000000000000000000000000000000000000000000, '2026-11-24 22:28:12.516915');
CREATE TABLE `ems_monitoring_traffic` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `partition_id` bigint(20) NOT NULL,
  `minute` datetime(6) NOT NULL,
  `first_offset` bigint(20) NOT NULL,
  `end_offset` bigint(20) NOT NULL,
  `messages` bigint(20) NOT NULL,
  `bytes` bigint(20) NOT NULL,
  `keys` bigint(20) NOT NULL,
  `delayed` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_traffic_place` (`partition_id`,`first_offset`),
  KEY `ems_traffic_minute` (`minute`,`partition_id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_traffic` (`id`, `partition_id`, `minute`, `first_offset`, `end_offset`, `messages`, `bytes`, `keys`, `delayed`) VALUES (1, 1, '2026-11-24 22:28:13.581277', 1, 1, 1, 1, 1, 1);
CREATE TABLE `ems_monitoring_traffic_level` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `grain` smallint(5) unsigned NOT NULL CHECK (`grain` >= 0),
  `start` datetime(6) NOT NULL,
  `partition_id` bigint(20) NOT NULL,
  `messages` bigint(20) NOT NULL,
  `bytes` bigint(20) NOT NULL,
  `delayed` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_traffic_level_place` (`grain`,`start`,`partition_id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_monitoring_traffic_level` (`id`, `grain`, `start`, `partition_id`, `messages`, `bytes`, `delayed`) VALUES (1, 1, '2026-11-24 22:28:12.957203', 1, 1, 1, 1);
CREATE TABLE `ems_move` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `name` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `token` varchar(32) NOT NULL,
  `source` varchar(190) NOT NULL,
  `target` varchar(190) NOT NULL,
  `access` varchar(10) NOT NULL,
  `who` varchar(255) NOT NULL,
  `started_at` datetime(6) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_move_token` (`token`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_move` (`id`, `name`, `token`, `source`, `target`, `access`, `who`, `started_at`, `finished_at`) VALUES (1, 'orders', 't', 'old', 'default', 'read-write', '<script>alert(1)</script>', '2026-11-24 22:28:09.246894', NULL);
CREATE TABLE `ems_msg` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `offset` bigint(20) DEFAULT NULL,
  `due_at` datetime(6) DEFAULT NULL,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `tag` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `headers` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`headers`)),
  `body` longblob NOT NULL,
  `body_type` varchar(5) NOT NULL,
  `size` int(10) unsigned NOT NULL CHECK (`size` >= 0),
  `producer` varchar(190) NOT NULL,
  `created_at` datetime(6) NOT NULL,
  `sequenced_at` datetime(6) DEFAULT NULL,
  `partition_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_msg_log` (`partition_id`,`offset`),
  KEY `ems_msg_inbox` (`partition_id`,`offset`,`due_at`)
) ENGINE=InnoDB AUTO_INCREMENT=27 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (1, 0, '1970-01-01 00:00:00', 'key-0', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', 0x7b226e6f7465223a227468652d626f64792d6f662d7468652d6d657373616765203c7363726970743e616c6572742831293c2f7363726970743e227d, 'json', 60, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:04.898628', '2026-11-24 22:28:05.934297', 1);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (2, 1, '1970-01-01 00:00:00', 'key-1', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', 0x7b226e223a317d, 'json', 7, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:04.914440', '2026-11-24 22:28:05.934297', 1);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (3, 2, '1970-01-01 00:00:00', 'key-2', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', 0x74657874, 'text', 4, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:04.920935', '2026-11-24 22:28:05.934297', 1);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (4, 3, '1970-01-01 00:00:00', 'key-3', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', 0x00ff, 'bytes', 2, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:04.942934', '2026-11-24 22:28:05.934297', 1);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (5, 4, '1970-01-01 00:00:00', 'key-4', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', 0x7b226e223a347d, 'json', 7, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:04.952613', '2026-11-24 22:28:05.934297', 1);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (6, NULL, '2026-11-25 22:28:08.442392', NULL, '', NULL, 0x6c61746572, 'text', 5, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:08.442392', NULL, 1);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (7, 0, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d30227d, 'json', 14, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:10.633873', '2026-11-24 22:28:11.092859', 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (8, 1, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d31227d, 'json', 14, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:10.657205', '2026-11-24 22:28:11.092859', 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (9, 2, '1970-01-01 00:00:00', 'key-2', '', NULL, 0x7b226e223a226b6570742d32227d, 'json', 14, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:10.665270', '2026-11-24 22:28:11.092859', 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (10, 3, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d33227d, 'json', 14, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:10.683303', '2026-11-24 22:28:11.092859', 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (11, 4, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d34227d, 'json', 14, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:10.703552', '2026-11-24 22:28:11.092859', 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (12, 5, '1970-01-01 00:00:00', 'key-2', '', NULL, 0x7b226e223a226b6570742d35227d, 'json', 14, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:10.718020', '2026-11-24 22:28:11.092859', 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (13, 6, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d36227d, 'json', 14, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:10.722303', '2026-11-24 22:28:11.092859', 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (14, 7, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d37227d, 'json', 14, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:10.752037', '2026-11-24 22:28:11.092859', 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (15, 8, '1970-01-01 00:00:00', 'key-2', '', NULL, 0x7b226e223a226b6570742d38227d, 'json', 14, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:10.767335', '2026-11-24 22:28:11.092859', 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (16, 9, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d39227d, 'json', 14, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:10.784857', '2026-11-24 22:28:11.092859', 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (17, NULL, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d3130227d, 'json', 15, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:11.434690', NULL, 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (18, NULL, '1970-01-01 00:00:00', 'key-2', '', NULL, 0x7b226e223a226b6570742d3131227d, 'json', 15, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:11.465017', NULL, 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (19, NULL, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d3132227d, 'json', 15, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:11.487280', NULL, 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (20, NULL, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d3133227d, 'json', 15, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:11.508153', NULL, 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (21, NULL, '1970-01-01 00:00:00', 'key-2', '', NULL, 0x7b226e223a226b6570742d3134227d, 'json', 15, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:11.517300', NULL, 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (22, NULL, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d3135227d, 'json', 15, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:11.524660', NULL, 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (23, NULL, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d3136227d, 'json', 15, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:11.550590', NULL, 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (24, NULL, '1970-01-01 00:00:00', 'key-2', '', NULL, 0x7b226e223a226b6570742d3137227d, 'json', 15, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:11.565052', NULL, 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (25, NULL, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d3138227d, 'json', 15, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:11.572718', NULL, 2);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (26, NULL, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d3139227d, 'json', 15, '192.0.2.2@12708@MainThread', '2026-11-24 22:28:11.593762', NULL, 2);
CREATE TABLE `ems_partition` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `number` int(10) unsigned NOT NULL CHECK (`number` >= 0),
  `next_offset` bigint(20) NOT NULL,
  `first_offset` bigint(20) NOT NULL,
  `archived_offset` bigint(20) NOT NULL DEFAULT 0,
  `keys_from` bigint(20) DEFAULT NULL,
  `epoch` int(10) unsigned NOT NULL DEFAULT 0 CHECK (`epoch` >= 0),
  `server` varchar(64) NOT NULL DEFAULT '',
  `last_sequenced_at` datetime(6) DEFAULT NULL,
  `topic_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_partition_number` (`topic_id`,`number`),
  CONSTRAINT `ems_partition_topic_id_0578e9ce_fk_ems_topic_id` FOREIGN KEY (`topic_id`) REFERENCES `ems_topic` (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=3 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_partition` (`id`, `number`, `next_offset`, `first_offset`, `archived_offset`, `keys_from`, `epoch`, `server`, `last_sequenced_at`, `topic_id`) VALUES (1, 0, 5, 0, 0, NULL, 0, '1@vm:29361', '2026-11-24 22:28:05.934297', 1);
INSERT INTO `ems_partition` (`id`, `number`, `next_offset`, `first_offset`, `archived_offset`, `keys_from`, `epoch`, `server`, `last_sequenced_at`, `topic_id`) VALUES (2, 0, 10, 0, 0, NULL, 0, '1@vm:29361', '2026-11-24 22:28:11.092859', 2);
CREATE TABLE `ems_prepared` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `biz` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `biz_key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `state` varchar(11) NOT NULL,
  `topic` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `partition` int(10) unsigned DEFAULT NULL CHECK (`partition` >= 0),
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `tag` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `headers` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`headers`)),
  `body` longblob NOT NULL,
  `body_type` varchar(5) NOT NULL,
  `size` int(10) unsigned NOT NULL CHECK (`size` >= 0),
  `digest` binary(32) NOT NULL,
  `producer` varchar(190) NOT NULL,
  `checker` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `context` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`context`)),
  `checks` int(10) unsigned NOT NULL CHECK (`checks` >= 0),
  `sends` int(10) unsigned NOT NULL CHECK (`sends` >= 0),
  `next_at` datetime(6) DEFAULT NULL,
  `checked_at` datetime(6) DEFAULT NULL,
  `last_answer` varchar(8) NOT NULL,
  `last_error` varchar(1000) NOT NULL,
  `decided_at` datetime(6) DEFAULT NULL,
  `decided_by` varchar(190) NOT NULL,
  `disputed_at` datetime(6) DEFAULT NULL,
  `message_id` bigint(20) DEFAULT NULL,
  `sent_partition` int(10) unsigned DEFAULT NULL CHECK (`sent_partition` >= 0),
  `sent_at` datetime(6) DEFAULT NULL,
  `created_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_prepared_key` (`biz`,`biz_key`),
  KEY `ems_prepared_due` (`state`,`checker`,`next_at`),
  KEY `ems_prepared_topic` (`topic`,`state`),
  KEY `ems_prepared_decided` (`decided_at`),
  KEY `ems_prepared_disputed` (`disputed_at`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_prepared` (`id`, `biz`, `biz_key`, `state`, `topic`, `partition`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `digest`, `producer`, `checker`, `context`, `checks`, `sends`, `next_at`, `checked_at`, `last_answer`, `last_error`, `decided_at`, `decided_by`, `disputed_at`, `message_id`, `sent_partition`, `sent_at`, `created_at`) VALUES (1, 'shop', 'A7', 'PREPARED', 'orders', NULL, NULL, '', NULL, 0x7468652d626f64792d6f662d7468652d6d657373616765, 'text', 23, 0x3030303030303030303030303030303030303030303030303030303030303030, 'p', 'shop.order', '{"note": "<script>alert(1)</script>"}', 0, 0, '2026-11-24 23:28:08.878555', NULL, '', '<script>alert(1)</script>', NULL, '', NULL, NULL, NULL, NULL, '2026-11-24 22:28:08.878555');
CREATE TABLE `ems_rate` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `next_slot` bigint(20) NOT NULL,
  `taken` int(10) unsigned NOT NULL CHECK (`taken` >= 0),
  `group_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_rate_place` (`group_id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_rate` (`id`, `next_slot`, `taken`, `group_id`) VALUES (1, 0, 0, 1);
CREATE TABLE `ems_rate_key` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `key_hash` bigint(20) NOT NULL,
  `next_slot` bigint(20) NOT NULL,
  `queued_until` bigint(20) NOT NULL,
  `group_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_rate_key_place` (`group_id`,`key_hash`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_rate_key` (`id`, `key_hash`, `next_slot`, `queued_until`, `group_id`) VALUES (1, 1, 0, 0, 1);
CREATE TABLE `ems_reader` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `checkpoint` varchar(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `name` varchar(127) NOT NULL,
  `protect` tinyint(1) NOT NULL,
  `positions` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (json_valid(`positions`)),
  `total` bigint(20) NOT NULL,
  `first_seen_at` datetime(6) NOT NULL,
  `seen_at` datetime(6) NOT NULL,
  `before_total` bigint(20) NOT NULL,
  `before_at` datetime(6) NOT NULL,
  `topic_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_reader_topic` (`topic_id`,`checkpoint`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_reader` (`id`, `checkpoint`, `name`, `protect`, `positions`, `total`, `first_seen_at`, `seen_at`, `before_total`, `before_at`, `topic_id`) VALUES (1, 'c', '<script>alert(1)</script>', 0, '{}', 0, '2026-11-24 22:28:09.296623', '2026-11-24 22:28:09.296623', 0, '2026-11-24 22:28:09.296623', 1);
CREATE TABLE `ems_redrive` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `namespace` varchar(16) NOT NULL,
  `about` varchar(255) NOT NULL,
  `groups` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (json_valid(`groups`)),
  `error_class` varchar(255) NOT NULL,
  `ids` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`ids`)),
  `upto` bigint(20) NOT NULL,
  `rate` double NOT NULL,
  `state` varchar(7) NOT NULL,
  `total` bigint(20) DEFAULT NULL,
  `after` bigint(20) NOT NULL,
  `done` bigint(20) NOT NULL,
  `skipped` bigint(20) NOT NULL,
  `who` varchar(255) NOT NULL,
  `created_at` datetime(6) NOT NULL,
  `stepped_at` datetime(6) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_redrive_state` (`state`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_redrive` (`id`, `namespace`, `about`, `groups`, `error_class`, `ids`, `upto`, `rate`, `state`, `total`, `after`, `done`, `skipped`, `who`, `created_at`, `stepped_at`, `finished_at`) VALUES (1, '', 'billing on orders', '[2]', '', NULL, 3, 1.0, 'stopped', NULL, 0, 0, 0, 'ann', '2026-11-24 22:28:09.117328', '2026-11-24 22:28:09.117328', NULL);
CREATE TABLE `ems_retry_msg` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `offset` bigint(20) NOT NULL,
  `attempt` int(10) unsigned NOT NULL CHECK (`attempt` >= 0),
  `due_at` datetime(6) DEFAULT NULL,
  `key_hash` bigint(20) DEFAULT NULL,
  `again` tinyint(1) NOT NULL,
  `alone` tinyint(1) NOT NULL,
  `last_error` varchar(1000) NOT NULL,
  `dead_letter_id` bigint(20) DEFAULT NULL,
  `delivery_id` bigint(20) DEFAULT NULL,
  `group_id` bigint(20) NOT NULL,
  `partition_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_retry_place` (`group_id`,`partition_id`,`offset`),
  KEY `ems_retry_due` (`group_id`,`delivery_id`,`due_at`),
  KEY `ems_retry_key` (`group_id`,`partition_id`,`key_hash`,`offset`)
) ENGINE=InnoDB AUTO_INCREMENT=3 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_retry_msg` (`id`, `offset`, `attempt`, `due_at`, `key_hash`, `again`, `alone`, `last_error`, `dead_letter_id`, `delivery_id`, `group_id`, `partition_id`) VALUES (1, 3, 2, '2026-11-24 22:28:16.454273', NULL, 0, 0, 'TimeoutError: the bank does not answer', NULL, NULL, 3, 1);
INSERT INTO `ems_retry_msg` (`id`, `offset`, `attempt`, `due_at`, `key_hash`, `again`, `alone`, `last_error`, `dead_letter_id`, `delivery_id`, `group_id`, `partition_id`) VALUES (2, 4, 2, '2026-11-24 22:28:17.850737', NULL, 0, 0, 'TimeoutError: the bank does not answer', NULL, NULL, 3, 1);
CREATE TABLE `ems_rewind` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `epoch` int(10) unsigned NOT NULL CHECK (`epoch` >= 0),
  `first_offset` bigint(20) NOT NULL,
  `known_offset` bigint(20) NOT NULL,
  `next_offset` bigint(20) NOT NULL,
  `noticed_at` datetime(6) NOT NULL,
  `noticed_by` varchar(190) NOT NULL,
  `partition_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_rewind_place` (`partition_id`,`epoch`),
  KEY `ems_rewind_noticed` (`noticed_at`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_rewind` (`id`, `epoch`, `first_offset`, `known_offset`, `next_offset`, `noticed_at`, `noticed_by`, `partition_id`) VALUES (1, 1, 5, 7, 1007, '2026-09-25 22:28:09.230172', '<script>alert(1)</script>', 1);
CREATE TABLE `ems_step` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `name` varchar(32) NOT NULL,
  `last_run_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_step_name` (`name`)
) ENGINE=InnoDB AUTO_INCREMENT=3 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_step` (`id`, `name`, `last_run_at`) VALUES (1, 'sequence', '2026-11-24 22:28:10.457959');
INSERT INTO `ems_step` (`id`, `name`, `last_run_at`) VALUES (2, 'sweep', '2026-11-24 22:28:10.457959');
CREATE TABLE `ems_stress_run` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `namespace` varchar(16) NOT NULL,
  `load` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (json_valid(`load`)),
  `result` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`result`)),
  `error` varchar(1000) NOT NULL,
  `who` varchar(255) NOT NULL,
  `started_at` datetime(6) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_stress_run` (`id`, `namespace`, `load`, `result`, `error`, `who`, `started_at`, `finished_at`) VALUES (1, '', '{"messages": 10}', NULL, '<script>alert(1)</script>', '<script>alert(1)</script>', '2026-11-24 22:28:09.509819', NULL);
CREATE TABLE `ems_system_config` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `name` varchar(64) NOT NULL,
  `value` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (json_valid(`value`)),
  `updated_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_system_config_name` (`name`)
) ENGINE=InnoDB AUTO_INCREMENT=5 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_system_config` (`id`, `name`, `value`, `updated_at`) VALUES (4, 'consumerBatchSize', '20', '2026-11-24 22:28:08.607902');
CREATE TABLE `ems_task` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `result_id` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `message_id` bigint(20) NOT NULL,
  `partition` int(11) DEFAULT NULL,
  `offset` bigint(20) DEFAULT NULL,
  `backend` varchar(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `queue` varchar(121) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `path` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `priority` smallint(6) NOT NULL,
  `arguments` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (json_valid(`arguments`)),
  `run_after` datetime(6) DEFAULT NULL,
  `status` varchar(10) NOT NULL,
  `enqueued_at` datetime(6) NOT NULL,
  `started_at` datetime(6) DEFAULT NULL,
  `last_attempted_at` datetime(6) DEFAULT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  `cancelled_at` datetime(6) DEFAULT NULL,
  `attempts` int(11) NOT NULL,
  `attempts_before` int(11) NOT NULL,
  `token` bigint(20) NOT NULL,
  `worker_ids` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (json_valid(`worker_ids`)),
  `errors` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (json_valid(`errors`)),
  `return_value` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`return_value`)),
  `metadata` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (json_valid(`metadata`)),
  `copies` int(11) NOT NULL,
  `batch_id` bigint(20) DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_task_result` (`result_id`),
  KEY `ems_task_ended` (`status`,`finished_at`),
  KEY `ems_task_queue` (`queue`,`status`,`enqueued_at`),
  KEY `ems_task_path` (`path`,`status`),
  KEY `ems_task_message` (`message_id`),
  KEY `ems_task_of_batch` (`batch_id`,`status`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_task` (`id`, `result_id`, `message_id`, `partition`, `offset`, `backend`, `queue`, `path`, `priority`, `arguments`, `run_after`, `status`, `enqueued_at`, `started_at`, `last_attempted_at`, `finished_at`, `cancelled_at`, `attempts`, `attempts_before`, `token`, `worker_ids`, `errors`, `return_value`, `metadata`, `copies`, `batch_id`) VALUES (1, 'x', 1, 1, 1, 'x', 'x', 'x', 0, '{}', '2026-11-24 22:28:13.682836', 'x', '2026-11-24 22:28:13.723409', '2026-11-24 22:28:13.723428', '2026-11-24 22:28:13.723436', '2026-11-24 22:28:13.723443', '2026-11-24 22:28:13.723449', 0, 0, 0, '[]', '[]', '{}', '{}', 0, 1);
CREATE TABLE `ems_task_batch` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `backend` varchar(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `total` int(11) NOT NULL,
  `on_success` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`on_success`)),
  `on_failure` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`on_failure`)),
  `created_at` datetime(6) NOT NULL,
  `check_at` datetime(6) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  `failed` int(11) DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_task_batch_next` (`finished_at`,`check_at`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_task_batch` (`id`, `backend`, `total`, `on_success`, `on_failure`, `created_at`, `check_at`, `finished_at`, `failed`) VALUES (1, 'x', 1, '{}', '{}', '2026-11-24 22:28:13.613166', '2026-11-24 22:28:13.613166', '2026-11-24 22:28:13.609516', 1);
CREATE TABLE `ems_task_schedule` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `name` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `paused` tinyint(1) NOT NULL,
  `last_tick_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_task_schedule_name` (`name`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_task_schedule` (`id`, `name`, `paused`, `last_tick_at`) VALUES (1, 'x', 0, '2026-11-24 22:28:13.781069');
CREATE TABLE `ems_task_slot` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `key_hash` binary(32) NOT NULL,
  `number` int(11) NOT NULL,
  `token` bigint(20) NOT NULL,
  `topic` bigint(20) NOT NULL,
  `partition` int(11) NOT NULL,
  `offset` bigint(20) NOT NULL,
  `taken_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_task_slot_place` (`key_hash`,`number`)
) ENGINE=InnoDB AUTO_INCREMENT=2 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_task_slot` (`id`, `key_hash`, `number`, `token`, `topic`, `partition`, `offset`, `taken_at`) VALUES (1, 0x00ff000000000000000000000000000000000000000000000000000000000000, 1, 0, 0, 0, 0, '2026-11-24 22:28:13.805839');
CREATE TABLE `ems_topic` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `name` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `access` varchar(10) NOT NULL,
  `retention_seconds` bigint(20) unsigned DEFAULT NULL CHECK (`retention_seconds` >= 0),
  `retention_count` bigint(20) unsigned DEFAULT NULL CHECK (`retention_count` >= 0),
  `retention_consumed` tinyint(1) NOT NULL DEFAULT 0,
  `archive` tinyint(1) NOT NULL DEFAULT 0,
  `index_keys` tinyint(1) NOT NULL DEFAULT 0,
  `created_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_topic_name` (`name`)
) ENGINE=InnoDB AUTO_INCREMENT=3 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_topic` (`id`, `name`, `access`, `retention_seconds`, `retention_count`, `retention_consumed`, `archive`, `index_keys`, `created_at`) VALUES (1, 'orders', 'read-write', NULL, NULL, 0, 0, 0, '2026-11-24 22:28:04.825849');
INSERT INTO `ems_topic` (`id`, `name`, `access`, `retention_seconds`, `retention_count`, `retention_consumed`, `archive`, `index_keys`, `created_at`) VALUES (2, 'upgrade', 'read-write', NULL, NULL, 0, 0, 0, '2026-11-24 22:28:10.533177');
CREATE TABLE `ems_topic_group_log` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `first_offset` bigint(20) NOT NULL,
  `last_offset` bigint(20) NOT NULL,
  `progress` bigint(20) NOT NULL,
  `kind` varchar(6) NOT NULL,
  `attempt` int(10) unsigned NOT NULL CHECK (`attempt` >= 0),
  `client_id` varchar(190) NOT NULL,
  `thread` varchar(64) NOT NULL,
  `token` varchar(32) NOT NULL,
  `state` varchar(8) NOT NULL,
  `claimed_at` datetime(6) NOT NULL,
  `started_at` datetime(6) DEFAULT NULL,
  `deadline` datetime(6) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  `failed` int(10) unsigned NOT NULL CHECK (`failed` >= 0),
  `dead` int(10) unsigned NOT NULL CHECK (`dead` >= 0),
  `missing` int(10) unsigned NOT NULL CHECK (`missing` >= 0),
  `passed` int(10) unsigned NOT NULL DEFAULT 0 CHECK (`passed` >= 0),
  `error` varchar(1000) NOT NULL,
  `parked` longtext DEFAULT NULL,
  `errors` longtext DEFAULT NULL,
  `settled` bigint(20) unsigned DEFAULT NULL CHECK (`settled` >= 0),
  `group_id` bigint(20) NOT NULL,
  `partition_id` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_log_place` (`group_id`,`partition_id`,`first_offset`),
  KEY `ems_log_open` (`state`,`deadline`)
) ENGINE=InnoDB AUTO_INCREMENT=10 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (1, 0, 4, 5, 'new', 1, 'streams.testing', 'MainThread', '8318bf2ab0224c0d93eed1cdddf838c6', 'DONE', '2026-11-24 22:28:06.127965', '2026-11-24 22:28:06.181233', '2026-11-24 22:29:06.127965', '2026-11-24 22:28:06.188415', 0, 0, 0, 0, '', NULL, NULL, NULL, 1, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (2, 0, 0, 1, 'new', 1, 'streams.testing', 'MainThread', '1ff7b22a83654488be057c5bb5a1175a', 'RETRY', '2026-11-24 22:28:06.248275', '2026-11-24 22:28:06.284187', '2026-11-24 22:29:06.284187', '2026-11-24 22:28:06.320625', 1, 1, 0, 0, 'ValueError: no account for <script>alert(1)</script>', NULL, NULL, NULL, 2, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (3, 1, 1, 2, 'new', 1, 'streams.testing', 'MainThread', 'ac01f846164543fc8472684090b611ea', 'RETRY', '2026-11-24 22:28:06.448109', '2026-11-24 22:28:06.485726', '2026-11-24 22:29:06.485726', '2026-11-24 22:28:06.554193', 1, 1, 0, 0, 'ValueError: no account for <script>alert(1)</script>', NULL, NULL, NULL, 2, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (4, 2, 2, 3, 'new', 1, 'streams.testing', 'MainThread', '862bbc99a9d04f7d92c43852664327d0', 'RETRY', '2026-11-24 22:28:06.819113', '2026-11-24 22:28:06.951441', '2026-11-24 22:29:06.951441', '2026-11-24 22:28:07.001607', 1, 1, 0, 0, 'ValueError: no account for <script>alert(1)</script>', NULL, NULL, NULL, 2, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (5, 3, 3, 4, 'new', 1, 'streams.testing', 'MainThread', '6aff5c8205994ff081e19bb5accc6552', 'DONE', '2026-11-24 22:28:07.207617', '2026-11-24 22:28:07.284466', '2026-11-24 22:29:07.284466', '2026-11-24 22:28:07.322069', 0, 0, 0, 0, '', NULL, NULL, NULL, 2, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (6, 4, 4, 5, 'new', 1, 'streams.testing', 'MainThread', 'a8fc3148e5b84ee0b8a1e7da0da4eeb1', 'DONE', '2026-11-24 22:28:07.372200', '2026-11-24 22:28:07.397399', '2026-11-24 22:29:07.397399', '2026-11-24 22:28:07.415621', 0, 0, 0, 0, '', NULL, NULL, NULL, 2, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (7, 0, 4, 5, 'new', 1, 'streams.testing', 'MainThread', '7ee12c2b3a674047addde5ceaec187bf', 'RETRY', '2026-11-24 22:28:07.721006', '2026-11-24 22:28:07.854970', '2026-11-24 22:29:07.721006', '2026-11-24 22:28:07.858596', 2, 0, 0, 0, 'TimeoutError: the bank does not answer', NULL, '{"TimeoutError: the bank does not answer": [3, 4]}', NULL, 3, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (8, 4, 4, 4, 'new', 1, '10.0.0.1@7@abc', 'mail-0', 'secret-token', 'START', '2026-11-24 22:28:08.546655', NULL, '2026-11-24 22:29:08.545217', NULL, 0, 0, 0, 0, '', NULL, NULL, NULL, 1, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (9, 0, 9, 10, 'new', 1, 'streams.testing', 'MainThread', '71edd39b10524947aba7f3247d9bd70a', 'DONE', '2026-11-24 22:28:11.237171', '2026-11-24 22:28:11.289638', '2026-11-24 22:29:11.237171', '2026-11-24 22:28:11.304479', 0, 0, 0, 0, '', NULL, NULL, NULL, 4, 2);
CREATE TABLE `hostapp_handled` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `group` varchar(100) NOT NULL,
  `topic` varchar(100) NOT NULL,
  `partition` int(11) NOT NULL,
  `offset` bigint(20) NOT NULL,
  `value` longtext NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE `hostapp_order` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `number` varchar(40) NOT NULL,
  `note` longtext NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `number` (`number`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
SET foreign_key_checks = 1;
