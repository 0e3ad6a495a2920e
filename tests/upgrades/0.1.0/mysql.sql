SET foreign_key_checks = 0;
CREATE TABLE `auth_group` (
  `id` int NOT NULL AUTO_INCREMENT,
  `name` varchar(150) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `name` (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `auth_group_permissions` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `group_id` int NOT NULL,
  `permission_id` int NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `auth_group_permissions_group_id_permission_id_0cd325b0_uniq` (`group_id`,`permission_id`),
  KEY `auth_group_permissio_permission_id_84c5c92e_fk_auth_perm` (`permission_id`),
  CONSTRAINT `auth_group_permissio_permission_id_84c5c92e_fk_auth_perm` FOREIGN KEY (`permission_id`) REFERENCES `auth_permission` (`id`),
  CONSTRAINT `auth_group_permissions_group_id_b120cbf9_fk_auth_group_id` FOREIGN KEY (`group_id`) REFERENCES `auth_group` (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `auth_permission` (
  `id` int NOT NULL AUTO_INCREMENT,
  `name` varchar(255) NOT NULL,
  `content_type_id` int NOT NULL,
  `codename` varchar(100) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `auth_permission_content_type_id_codename_01ab375a_uniq` (`content_type_id`,`codename`),
  CONSTRAINT `auth_permission_content_type_id_2f476e4b_fk_django_co` FOREIGN KEY (`content_type_id`) REFERENCES `django_content_type` (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=490 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (1, 'Can add log entry', 1, 'add_logentry');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (4, 'Can change log entry', 1, 'change_logentry');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (7, 'Can delete log entry', 1, 'delete_logentry');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (10, 'Can view log entry', 1, 'view_logentry');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (13, 'Can add permission', 4, 'add_permission');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (16, 'Can change permission', 4, 'change_permission');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (19, 'Can delete permission', 4, 'delete_permission');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (22, 'Can view permission', 4, 'view_permission');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (25, 'Can add group', 7, 'add_group');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (28, 'Can change group', 7, 'change_group');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (31, 'Can delete group', 7, 'delete_group');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (34, 'Can view group', 7, 'view_group');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (37, 'Can add user', 10, 'add_user');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (40, 'Can change user', 10, 'change_user');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (43, 'Can delete user', 10, 'delete_user');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (46, 'Can view user', 10, 'view_user');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (49, 'Can add content type', 13, 'add_contenttype');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (52, 'Can change content type', 13, 'change_contenttype');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (55, 'Can delete content type', 13, 'delete_contenttype');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (58, 'Can view content type', 13, 'view_contenttype');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (61, 'Can add session', 16, 'add_session');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (64, 'Can change session', 16, 'change_session');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (67, 'Can delete session', 16, 'delete_session');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (70, 'Can view session', 16, 'view_session');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (73, 'Can view consumer group', 19, 'view_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (76, 'Can change consumer group', 19, 'change_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (79, 'Can pause consumer groups', 19, 'pause_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (82, 'Can resume consumer groups', 19, 'resume_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (85, 'Can forget consumer groups', 19, 'forget_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (88, 'Can reset consumer groups', 19, 'reset_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (91, 'Can replay messages to consumer groups', 19, 'replay_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (94, 'Can rehearse messages with the handlers of groups', 19, 'rehearse_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (97, 'Can retry blocked messages of consumer groups now', 19, 'retry_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (100, 'Can skip blocked messages of consumer groups', 19, 'skip_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (103, 'Can give up running calls of consumer groups', 19, 'give_up_consumergroup');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (106, 'Can view partition', 22, 'view_partition');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (109, 'Can view stress test', 25, 'view_stressrun');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (112, 'Can view API token', 28, 'view_apitoken');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (115, 'Can add API token', 28, 'add_apitoken');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (118, 'Can change API token', 28, 'change_apitoken');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (121, 'Can revoke API tokens', 28, 'revoke_apitoken');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (124, 'Can add check endpoint', 31, 'add_checkendpoint');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (127, 'Can change check endpoint', 31, 'change_checkendpoint');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (130, 'Can delete check endpoint', 31, 'delete_checkendpoint');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (133, 'Can view check endpoint', 31, 'view_checkendpoint');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (136, 'Can test check endpoints', 31, 'test_checkendpoint');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (139, 'Can view dead letter', 34, 'view_deadmessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (142, 'Can redrive dead letters', 34, 'redrive_deadmessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (145, 'Can discard dead letters', 34, 'discard_deadmessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (148, 'Can edit dead letters and send them again', 34, 'edit_deadmessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (151, 'Can view move of a topic', 37, 'view_move');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (154, 'Can view delivery', 40, 'view_delivery');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (157, 'Can view cursor', 43, 'view_cursor');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (160, 'Can view prepared message', 46, 'view_preparedrow');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (163, 'Can check prepared messages', 46, 'check_prepared');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (166, 'Can commit prepared messages', 46, 'commit_prepared');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (169, 'Can roll back prepared messages', 46, 'rollback_prepared');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (172, 'Can view rate bucket', 49, 'view_ratebucket');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (175, 'Can view redrive', 52, 'view_redrive');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (178, 'Can view retry', 55, 'view_retrymessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (181, 'Can view rewind of a log', 58, 'view_rewind');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (184, 'Can view step', 61, 'view_step');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (187, 'Can read the metrics for Prometheus', 61, 'view_metrics');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (190, 'Can add system setting', 64, 'add_systemconfig');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (193, 'Can change system setting', 64, 'change_systemconfig');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (196, 'Can delete system setting', 64, 'delete_systemconfig');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (199, 'Can view system setting', 64, 'view_systemconfig');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (202, 'Can view topic', 67, 'view_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (205, 'Can add topic', 67, 'add_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (208, 'Can change topic', 67, 'change_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (211, 'Can send test messages to topics', 67, 'produce_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (214, 'Can add partitions to topics', 67, 'grow_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (217, 'Can retire topics', 67, 'retire_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (220, 'Can delete topics', 67, 'delete_topic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (223, 'Can view stream of Spark', 70, 'view_reader');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (226, 'Can forget streams of Spark', 70, 'forget_reader');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (229, 'Can view dedup key', 73, 'view_dedupkey');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (232, 'Can view consumer', 79, 'view_consumer');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (235, 'Can view rate bucket of a key', 82, 'view_keybucket');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (238, 'Can view edit of a dead letter', 85, 'view_letteredit');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (241, 'Can view message', 88, 'view_message');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (244, 'Can view bodies of messages and dead letters', 88, 'view_body');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (247, 'Can cancel delayed messages', 88, 'cancel_message');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (250, 'Can view indexed key', 91, 'view_keyentry');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (253, 'Can view held key', 94, 'view_heldkey');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (256, 'Can view alarm', 97, 'view_alarm');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (259, 'Can acknowledge alarms', 97, 'acknowledge_alarm');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (262, 'Can add alarm channel', 100, 'add_alarmchannel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (265, 'Can change alarm channel', 100, 'change_alarmchannel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (268, 'Can delete alarm channel', 100, 'delete_alarmchannel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (271, 'Can view alarm channel', 100, 'view_alarmchannel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (274, 'Can test alarm channels', 100, 'test_alarmchannel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (277, 'Can view alarm notification', 103, 'view_alarmnotification');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (280, 'Can add alarm rule', 106, 'add_alarmrule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (283, 'Can change alarm rule', 106, 'change_alarmrule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (286, 'Can delete alarm rule', 106, 'delete_alarmrule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (289, 'Can view alarm rule', 106, 'view_alarmrule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (292, 'Can mute alarm rules', 106, 'mute_alarmrule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (295, 'Can view archived day', 109, 'view_archivedday');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (298, 'Can view finding of the audit', 112, 'view_auditfinding');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (301, 'Can view place of the audit', 115, 'view_auditplace');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (304, 'Can view backlogs of hours and days', 118, 'view_backloglevel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (307, 'Can view consumption', 121, 'view_consumption');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (310, 'Can view consumption of hours and days', 124, 'view_consumptionlevel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (313, 'Can view error class', 127, 'view_errorclass');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (316, 'Can view error classes of hours and days', 130, 'view_errorlevel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (319, 'Can view sample of a group', 133, 'view_groupsample');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (322, 'Can view hot key', 136, 'view_hotkey');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (325, 'Can view file of the lake', 139, 'view_lakefile');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (328, 'Can view position of the lake', 142, 'view_lakeposition');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (331, 'Can view latency', 145, 'view_latency');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (334, 'Can view latency of hours and days', 148, 'view_latencylevel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (337, 'Can view ledger entry', 151, 'view_ledgerentry');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (340, 'Can view mark', 154, 'view_mark');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (343, 'Can view open delivery', 157, 'view_opendelivery');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (346, 'Can view overview', 160, 'view_overview');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (349, 'Can view sample of a partition', 163, 'view_partitionsample');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (352, 'Can view position', 166, 'view_position');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (355, 'Can view replayed message', 169, 'view_replayedmessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (358, 'Can view run', 172, 'view_run');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (361, 'Can start Spark jobs', 172, 'start_run');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (364, 'Can view staged message', 175, 'view_stagedmessage');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (367, 'Can view traffic', 178, 'view_traffic');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (370, 'Can view traffic of hours and days', 181, 'view_trafficlevel');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (373, 'Can add order', 184, 'add_order');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (376, 'Can change order', 184, 'change_order');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (379, 'Can delete order', 184, 'delete_order');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (382, 'Can view order', 184, 'view_order');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (385, 'Can add handled', 187, 'add_handled');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (388, 'Can change handled', 187, 'change_handled');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (391, 'Can delete handled', 187, 'delete_handled');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (394, 'Can view handled', 187, 'view_handled');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (397, 'Can view batch of tasks', 190, 'view_taskbatch');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (400, 'Can view schedule of a task', 193, 'view_taskschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (403, 'Can pause schedules of tasks', 193, 'pause_taskschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (406, 'Can view task', 199, 'view_taskrun');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (409, 'Can run tasks again', 199, 'run_taskrun');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (412, 'Can cancel tasks', 199, 'cancel_taskrun');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (415, 'Can edit tasks and run them', 199, 'copy_taskrun');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (418, 'Can add solar event', 202, 'add_solarschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (421, 'Can change solar event', 202, 'change_solarschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (424, 'Can delete solar event', 202, 'delete_solarschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (427, 'Can view solar event', 202, 'view_solarschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (430, 'Can add interval', 205, 'add_intervalschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (433, 'Can change interval', 205, 'change_intervalschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (436, 'Can delete interval', 205, 'delete_intervalschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (439, 'Can view interval', 205, 'view_intervalschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (442, 'Can add clocked', 208, 'add_clockedschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (445, 'Can change clocked', 208, 'change_clockedschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (448, 'Can delete clocked', 208, 'delete_clockedschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (451, 'Can view clocked', 208, 'view_clockedschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (454, 'Can add crontab', 211, 'add_crontabschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (457, 'Can change crontab', 211, 'change_crontabschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (460, 'Can delete crontab', 211, 'delete_crontabschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (463, 'Can view crontab', 211, 'view_crontabschedule');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (466, 'Can add periodic task track', 214, 'add_periodictasks');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (469, 'Can change periodic task track', 214, 'change_periodictasks');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (472, 'Can delete periodic task track', 214, 'delete_periodictasks');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (475, 'Can view periodic task track', 214, 'view_periodictasks');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (478, 'Can add periodic task', 217, 'add_periodictask');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (481, 'Can change periodic task', 217, 'change_periodictask');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (484, 'Can delete periodic task', 217, 'delete_periodictask');
INSERT INTO `auth_permission` (`id`, `name`, `content_type_id`, `codename`) VALUES (487, 'Can view periodic task', 217, 'view_periodictask');
CREATE TABLE `auth_user` (
  `id` int NOT NULL AUTO_INCREMENT,
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
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `auth_user_groups` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `user_id` int NOT NULL,
  `group_id` int NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `auth_user_groups_user_id_group_id_94350c0c_uniq` (`user_id`,`group_id`),
  KEY `auth_user_groups_group_id_97559544_fk_auth_group_id` (`group_id`),
  CONSTRAINT `auth_user_groups_group_id_97559544_fk_auth_group_id` FOREIGN KEY (`group_id`) REFERENCES `auth_group` (`id`),
  CONSTRAINT `auth_user_groups_user_id_6a12ed8b_fk_auth_user_id` FOREIGN KEY (`user_id`) REFERENCES `auth_user` (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `auth_user_user_permissions` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `user_id` int NOT NULL,
  `permission_id` int NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `auth_user_user_permissions_user_id_permission_id_14a6b632_uniq` (`user_id`,`permission_id`),
  KEY `auth_user_user_permi_permission_id_1fbb5f2c_fk_auth_perm` (`permission_id`),
  CONSTRAINT `auth_user_user_permi_permission_id_1fbb5f2c_fk_auth_perm` FOREIGN KEY (`permission_id`) REFERENCES `auth_permission` (`id`),
  CONSTRAINT `auth_user_user_permissions_user_id_a95ead1b_fk_auth_user_id` FOREIGN KEY (`user_id`) REFERENCES `auth_user` (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `django_admin_log` (
  `id` int NOT NULL AUTO_INCREMENT,
  `action_time` datetime(6) NOT NULL,
  `object_id` longtext,
  `object_repr` varchar(200) NOT NULL,
  `action_flag` smallint unsigned NOT NULL,
  `change_message` longtext NOT NULL,
  `content_type_id` int DEFAULT NULL,
  `user_id` int NOT NULL,
  PRIMARY KEY (`id`),
  KEY `django_admin_log_content_type_id_c4bce8eb_fk_django_co` (`content_type_id`),
  KEY `django_admin_log_user_id_c564eba6_fk_auth_user_id` (`user_id`),
  CONSTRAINT `django_admin_log_content_type_id_c4bce8eb_fk_django_co` FOREIGN KEY (`content_type_id`) REFERENCES `django_content_type` (`id`),
  CONSTRAINT `django_admin_log_user_id_c564eba6_fk_auth_user_id` FOREIGN KEY (`user_id`) REFERENCES `auth_user` (`id`),
  CONSTRAINT `django_admin_log_chk_1` CHECK ((`action_flag` >= 0))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `django_celery_beat_clockedschedule` (
  `id` int NOT NULL AUTO_INCREMENT,
  `clocked_time` datetime(6) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `django_celery_beat_crontabschedule` (
  `id` int NOT NULL AUTO_INCREMENT,
  `minute` varchar(240) NOT NULL,
  `hour` varchar(96) NOT NULL,
  `day_of_month` varchar(124) NOT NULL,
  `month_of_year` varchar(64) NOT NULL,
  `day_of_week` varchar(64) NOT NULL,
  `timezone` varchar(63) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `django_celery_beat_intervalschedule` (
  `id` int NOT NULL AUTO_INCREMENT,
  `every` int NOT NULL,
  `period` varchar(24) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `django_celery_beat_periodictask` (
  `id` int NOT NULL AUTO_INCREMENT,
  `name` varchar(200) NOT NULL,
  `task` varchar(200) NOT NULL,
  `interval_id` int DEFAULT NULL,
  `crontab_id` int DEFAULT NULL,
  `solar_id` int DEFAULT NULL,
  `clocked_id` int DEFAULT NULL,
  `args` longtext NOT NULL,
  `kwargs` longtext NOT NULL,
  `queue` varchar(200) DEFAULT NULL,
  `exchange` varchar(200) DEFAULT NULL,
  `routing_key` varchar(200) DEFAULT NULL,
  `headers` longtext NOT NULL,
  `priority` int unsigned DEFAULT NULL,
  `expires` datetime(6) DEFAULT NULL,
  `expire_seconds` int unsigned DEFAULT NULL,
  `one_off` tinyint(1) NOT NULL,
  `start_time` datetime(6) DEFAULT NULL,
  `enabled` tinyint(1) NOT NULL,
  `last_run_at` datetime(6) DEFAULT NULL,
  `total_run_count` int unsigned NOT NULL,
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
  CONSTRAINT `django_celery_beat_p_solar_id_a87ce72c_fk_django_ce` FOREIGN KEY (`solar_id`) REFERENCES `django_celery_beat_solarschedule` (`id`),
  CONSTRAINT `django_celery_beat_periodictask_chk_1` CHECK ((`priority` >= 0)),
  CONSTRAINT `django_celery_beat_periodictask_chk_2` CHECK ((`expire_seconds` >= 0)),
  CONSTRAINT `django_celery_beat_periodictask_chk_3` CHECK ((`total_run_count` >= 0))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `django_celery_beat_periodictasks` (
  `ident` smallint NOT NULL,
  `last_update` datetime(6) NOT NULL,
  PRIMARY KEY (`ident`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `django_celery_beat_solarschedule` (
  `id` int NOT NULL AUTO_INCREMENT,
  `event` varchar(24) NOT NULL,
  `latitude` decimal(9,6) NOT NULL,
  `longitude` decimal(9,6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `django_celery_beat_solar_event_latitude_longitude_ba64999a_uniq` (`event`,`latitude`,`longitude`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `django_content_type` (
  `id` int NOT NULL AUTO_INCREMENT,
  `app_label` varchar(100) NOT NULL,
  `model` varchar(100) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `django_content_type_app_label_model_76bd3d3b_uniq` (`app_label`,`model`)
) ENGINE=InnoDB AUTO_INCREMENT=220 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (1, 'admin', 'logentry');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (4, 'auth', 'permission');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (7, 'auth', 'group');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (10, 'auth', 'user');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (13, 'contenttypes', 'contenttype');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (16, 'sessions', 'session');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (19, 'ems', 'consumergroup');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (22, 'ems', 'partition');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (25, 'ems', 'stressrun');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (28, 'ems', 'apitoken');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (31, 'ems', 'checkendpoint');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (34, 'ems', 'deadmessage');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (37, 'ems', 'move');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (40, 'ems', 'delivery');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (43, 'ems', 'cursor');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (46, 'ems', 'preparedrow');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (49, 'ems', 'ratebucket');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (52, 'ems', 'redrive');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (55, 'ems', 'retrymessage');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (58, 'ems', 'rewind');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (61, 'ems', 'step');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (64, 'ems', 'systemconfig');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (67, 'ems', 'topic');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (70, 'ems', 'reader');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (73, 'ems', 'dedupkey');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (76, 'ems', 'apiright');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (79, 'ems', 'consumer');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (82, 'ems', 'keybucket');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (85, 'ems', 'letteredit');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (88, 'ems', 'message');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (91, 'ems', 'keyentry');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (94, 'ems', 'heldkey');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (97, 'ems_monitoring', 'alarm');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (100, 'ems_monitoring', 'alarmchannel');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (103, 'ems_monitoring', 'alarmnotification');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (106, 'ems_monitoring', 'alarmrule');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (109, 'ems_monitoring', 'archivedday');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (112, 'ems_monitoring', 'auditfinding');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (115, 'ems_monitoring', 'auditplace');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (118, 'ems_monitoring', 'backloglevel');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (121, 'ems_monitoring', 'consumption');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (124, 'ems_monitoring', 'consumptionlevel');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (127, 'ems_monitoring', 'errorclass');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (130, 'ems_monitoring', 'errorlevel');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (133, 'ems_monitoring', 'groupsample');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (136, 'ems_monitoring', 'hotkey');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (139, 'ems_monitoring', 'lakefile');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (142, 'ems_monitoring', 'lakeposition');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (145, 'ems_monitoring', 'latency');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (148, 'ems_monitoring', 'latencylevel');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (151, 'ems_monitoring', 'ledgerentry');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (154, 'ems_monitoring', 'mark');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (157, 'ems_monitoring', 'opendelivery');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (160, 'ems_monitoring', 'overview');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (163, 'ems_monitoring', 'partitionsample');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (166, 'ems_monitoring', 'position');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (169, 'ems_monitoring', 'replayedmessage');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (172, 'ems_monitoring', 'run');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (175, 'ems_monitoring', 'stagedmessage');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (178, 'ems_monitoring', 'traffic');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (181, 'ems_monitoring', 'trafficlevel');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (184, 'hostapp', 'order');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (187, 'hostapp', 'handled');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (190, 'ems_tasks', 'taskbatch');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (193, 'ems_tasks', 'taskschedule');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (196, 'ems_tasks', 'taskslot');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (199, 'ems_tasks', 'taskrun');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (202, 'django_celery_beat', 'solarschedule');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (205, 'django_celery_beat', 'intervalschedule');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (208, 'django_celery_beat', 'clockedschedule');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (211, 'django_celery_beat', 'crontabschedule');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (214, 'django_celery_beat', 'periodictasks');
INSERT INTO `django_content_type` (`id`, `app_label`, `model`) VALUES (217, 'django_celery_beat', 'periodictask');
CREATE TABLE `django_migrations` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `app` varchar(255) NOT NULL,
  `name` varchar(255) NOT NULL,
  `applied` datetime(6) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=64 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (1, 'contenttypes', '0001_initial', '2026-11-24 22:27:03.509485');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (4, 'auth', '0001_initial', '2026-11-24 22:27:06.005216');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (7, 'admin', '0001_initial', '2026-11-24 22:27:06.797060');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (10, 'admin', '0002_logentry_remove_auto_add', '2026-11-24 22:27:06.956268');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (13, 'admin', '0003_logentry_add_action_flag_choices', '2026-11-24 22:27:07.149668');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (16, 'contenttypes', '0002_remove_content_type_name', '2026-11-24 22:27:08.276558');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (19, 'auth', '0002_alter_permission_name_max_length', '2026-11-24 22:27:08.762115');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (22, 'auth', '0003_alter_user_email_max_length', '2026-11-24 22:27:09.075556');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (25, 'auth', '0004_alter_user_username_opts', '2026-11-24 22:27:09.300144');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (28, 'auth', '0005_alter_user_last_login_null', '2026-11-24 22:27:09.825443');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (31, 'auth', '0006_require_contenttypes_0002', '2026-11-24 22:27:09.837677');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (34, 'auth', '0007_alter_validators_add_error_messages', '2026-11-24 22:27:10.015136');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (37, 'auth', '0008_alter_user_username_max_length', '2026-11-24 22:27:10.485247');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (40, 'auth', '0009_alter_user_last_name_max_length', '2026-11-24 22:27:10.954444');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (43, 'auth', '0010_alter_group_name_max_length', '2026-11-24 22:27:11.270597');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (46, 'auth', '0011_update_proxy_permissions', '2026-11-24 22:27:11.651056');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (49, 'auth', '0012_alter_user_first_name_max_length', '2026-11-24 22:27:12.053528');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (52, 'ems', '0001_initial', '2026-11-24 22:27:36.025610');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (55, 'ems_monitoring', '0001_initial', '2026-11-24 22:28:00.913951');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (58, 'ems_tasks', '0001_tasks', '2026-11-24 22:28:02.194008');
INSERT INTO `django_migrations` (`id`, `app`, `name`, `applied`) VALUES (61, 'sessions', '0001_initial', '2026-11-24 22:28:02.472191');
CREATE TABLE `django_session` (
  `session_key` varchar(40) NOT NULL,
  `session_data` longtext NOT NULL,
  `expire_date` datetime(6) NOT NULL,
  PRIMARY KEY (`session_key`),
  KEY `django_session_expire_date_a5c62663` (`expire_date`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `ems_api_right` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `verb` varchar(8) NOT NULL,
  `pattern` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `token_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_api_right_once` (`token_id`,`verb`,`pattern`),
  CONSTRAINT `ems_api_right_token_id_bb981287_fk_ems_api_token_id` FOREIGN KEY (`token_id`) REFERENCES `ems_api_token` (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_api_right` (`id`, `verb`, `pattern`, `token_id`) VALUES (1, 'send', 'orders', 1);
CREATE TABLE `ems_api_token` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `name` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `prefix` varchar(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `hash` binary(32) NOT NULL,
  `created_by` varchar(255) NOT NULL,
  `owner` varchar(64) NOT NULL,
  `created_at` datetime(6) NOT NULL,
  `expires_at` datetime(6) DEFAULT NULL,
  `last_used_at` datetime(6) DEFAULT NULL,
  `revoked_at` datetime(6) DEFAULT NULL,
  `max_rate` int unsigned DEFAULT NULL,
  `max_holds` int unsigned NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_api_token_prefix` (`prefix`),
  CONSTRAINT `ems_api_token_chk_1` CHECK ((`max_rate` >= 0)),
  CONSTRAINT `ems_api_token_chk_2` CHECK ((`max_holds` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_api_token` (`id`, `name`, `prefix`, `hash`, `created_by`, `owner`, `created_at`, `expires_at`, `last_used_at`, `revoked_at`, `max_rate`, `max_holds`) VALUES (1, 'shop', 't9dibqy9', 0x768b108beedb08464f0e2e8cac32d725da25a1a35222218898c2a831e06e501c, 'ann', '', '2026-11-24 22:28:12.806050', NULL, NULL, NULL, NULL, 16);
CREATE TABLE `ems_check_endpoint` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `name` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `url` varchar(1000) NOT NULL,
  `dialect` varchar(12) NOT NULL,
  `secret` varchar(255) NOT NULL,
  `timeout_seconds` int unsigned DEFAULT NULL,
  `allow_private` tinyint(1) NOT NULL,
  `enabled` tinyint(1) NOT NULL,
  `failures` int unsigned NOT NULL,
  `paused_until` datetime(6) DEFAULT NULL,
  `last_error` varchar(500) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_check_endpoint_name` (`name`),
  CONSTRAINT `ems_check_endpoint_chk_1` CHECK ((`timeout_seconds` >= 0)),
  CONSTRAINT `ems_check_endpoint_chk_2` CHECK ((`failures` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_check_endpoint` (`id`, `name`, `url`, `dialect`, `secret`, `timeout_seconds`, `allow_private`, `enabled`, `failures`, `paused_until`, `last_error`) VALUES (1, 'shop', 'https://example.com/x', 'ems', 's3cret-of-it', NULL, 0, 1, 0, NULL, '');
CREATE TABLE `ems_client` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `client_id` varchar(190) NOT NULL,
  `lease_until` datetime(6) NOT NULL,
  `started_at` datetime(6) NOT NULL,
  `locked_on` varchar(128) NOT NULL DEFAULT '',
  `away_since` datetime(6) DEFAULT NULL,
  `away_reason` varchar(255) NOT NULL DEFAULT '',
  `group_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_client_group` (`client_id`,`group_id`),
  KEY `ems_client_group_id_e6474bfa_fk_ems_group_id` (`group_id`),
  KEY `ems_client_lease` (`lease_until`),
  CONSTRAINT `ems_client_group_id_e6474bfa_fk_ems_group_id` FOREIGN KEY (`group_id`) REFERENCES `ems_group` (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_client` (`id`, `client_id`, `lease_until`, `started_at`, `locked_on`, `away_since`, `away_reason`, `group_id`) VALUES (1, '10.0.0.1@7@abc', '2026-11-24 23:28:12.551381', '2026-11-24 22:28:12.551381', '', NULL, '', 1);
CREATE TABLE `ems_cursor` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `replay` int unsigned NOT NULL,
  `next_offset` bigint NOT NULL,
  `start_offset` bigint NOT NULL,
  `previous_offset` bigint DEFAULT NULL,
  `reset_at` datetime(6) DEFAULT NULL,
  `stop_offset` bigint DEFAULT NULL,
  `log_offset` bigint NOT NULL DEFAULT '0',
  `open_delivery` bigint DEFAULT NULL,
  `attempt` int unsigned NOT NULL,
  `blocked_until` datetime(6) DEFAULT NULL,
  `blocked_at` datetime(6) DEFAULT NULL,
  `has_held_keys` tinyint(1) NOT NULL DEFAULT '0',
  `last_error` varchar(1000) NOT NULL DEFAULT '',
  `alone` tinyint(1) NOT NULL DEFAULT '0',
  `group_id` bigint NOT NULL,
  `partition_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_cursor_place` (`group_id`,`partition_id`,`replay`),
  KEY `ems_cursor_partition_id_db242ea9` (`partition_id`),
  CONSTRAINT `ems_cursor_group_id_611a7f31_fk_ems_group_id` FOREIGN KEY (`group_id`) REFERENCES `ems_group` (`id`),
  CONSTRAINT `ems_cursor_chk_1` CHECK ((`replay` >= 0)),
  CONSTRAINT `ems_cursor_chk_2` CHECK ((`attempt` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=13 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_cursor` (`id`, `replay`, `next_offset`, `start_offset`, `previous_offset`, `reset_at`, `stop_offset`, `log_offset`, `open_delivery`, `attempt`, `blocked_until`, `blocked_at`, `has_held_keys`, `last_error`, `alone`, `group_id`, `partition_id`) VALUES (1, 0, 5, 0, NULL, NULL, NULL, 0, NULL, 1, NULL, NULL, 0, '', 0, 1, 1);
INSERT INTO `ems_cursor` (`id`, `replay`, `next_offset`, `start_offset`, `previous_offset`, `reset_at`, `stop_offset`, `log_offset`, `open_delivery`, `attempt`, `blocked_until`, `blocked_at`, `has_held_keys`, `last_error`, `alone`, `group_id`, `partition_id`) VALUES (4, 0, 5, 0, NULL, NULL, NULL, 0, NULL, 1, NULL, NULL, 0, '', 0, 4, 1);
INSERT INTO `ems_cursor` (`id`, `replay`, `next_offset`, `start_offset`, `previous_offset`, `reset_at`, `stop_offset`, `log_offset`, `open_delivery`, `attempt`, `blocked_until`, `blocked_at`, `has_held_keys`, `last_error`, `alone`, `group_id`, `partition_id`) VALUES (7, 0, 5, 0, NULL, NULL, NULL, 0, NULL, 1, NULL, NULL, 0, '', 0, 7, 1);
INSERT INTO `ems_cursor` (`id`, `replay`, `next_offset`, `start_offset`, `previous_offset`, `reset_at`, `stop_offset`, `log_offset`, `open_delivery`, `attempt`, `blocked_until`, `blocked_at`, `has_held_keys`, `last_error`, `alone`, `group_id`, `partition_id`) VALUES (10, 0, 10, 0, NULL, NULL, NULL, 0, NULL, 1, NULL, NULL, 0, '', 0, 10, 4);
CREATE TABLE `ems_dead_edit` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `who` varchar(255) NOT NULL,
  `at` datetime(6) NOT NULL,
  `body` longblob NOT NULL,
  `body_type` varchar(5) NOT NULL,
  `size` int unsigned NOT NULL,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `tag` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `headers` json DEFAULT NULL,
  `group_id` bigint NOT NULL,
  `letter_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_edit_letter` (`letter_id`),
  CONSTRAINT `ems_dead_edit_chk_1` CHECK ((`size` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_dead_edit` (`id`, `who`, `at`, `body`, `body_type`, `size`, `key`, `tag`, `headers`, `group_id`, `letter_id`) VALUES (1, 'ann', '2026-11-24 22:28:12.706656', 0x7468652d626f64792d6f662d7468652d6d657373616765, 'text', 9, NULL, '', NULL, 4, 1);
CREATE TABLE `ems_dead_msg` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `offset` bigint NOT NULL,
  `message_id` bigint NOT NULL,
  `body` longblob NOT NULL,
  `body_type` varchar(5) NOT NULL,
  `size` int unsigned NOT NULL,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `tag` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `headers` json DEFAULT NULL,
  `producer` varchar(190) NOT NULL,
  `sent_at` datetime(6) NOT NULL,
  `attempts` int unsigned NOT NULL,
  `error_class` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `error` longtext NOT NULL,
  `traceback` longtext NOT NULL,
  `died_at` datetime(6) NOT NULL,
  `redriven_at` datetime(6) DEFAULT NULL,
  `edited_at` datetime(6) DEFAULT NULL,
  `group_id` bigint NOT NULL,
  `partition_id` bigint NOT NULL,
  `topic_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_dead_place` (`group_id`,`partition_id`,`offset`),
  KEY `ems_dead_waiting` (`group_id`,`redriven_at`),
  KEY `ems_dead_died` (`died_at`),
  KEY `ems_dead_msg_topic_id_ba655418` (`topic_id`),
  CONSTRAINT `ems_dead_msg_chk_1` CHECK ((`size` >= 0)),
  CONSTRAINT `ems_dead_msg_chk_2` CHECK ((`attempts` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=10 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_dead_msg` (`id`, `offset`, `message_id`, `body`, `body_type`, `size`, `key`, `tag`, `headers`, `producer`, `sent_at`, `attempts`, `error_class`, `error`, `traceback`, `died_at`, `redriven_at`, `edited_at`, `group_id`, `partition_id`, `topic_id`) VALUES (1, 0, 1, 0x7b226e6f7465223a227468652d626f64792d6f662d7468652d6d657373616765203c7363726970743e616c6572742831293c2f7363726970743e227d, 'json', 60, 'key-0', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', '192.0.2.2@12706@MainThread', '2026-11-24 22:28:08.921728', 1, 'ValueError', 'no account for <script>alert(1)</script>', 'Traceback (most recent call last):\n  File "/srv/shop/streams/consume/calling.py", line 83, in failures\n    return self.called(messages)\n           ^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/streams/consume/calling.py", line 98, in called\n    self._timed(message)\n  File "/srv/shop/streams/consume/calling.py", line 116, in _timed\n    returned = self._handler(argument)\n               ^^^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/streams/consume/calling.py", line 145, in _run\n    returned = registration.handler(argument)\n               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/tests/admin/world.py", line 110, in bill\n    raise ValueError(f"no account for {XSS}")\nValueError: no account for <script>alert(1)</script>\n', '2026-11-24 22:28:10.666087', NULL, NULL, 4, 1, 1);
INSERT INTO `ems_dead_msg` (`id`, `offset`, `message_id`, `body`, `body_type`, `size`, `key`, `tag`, `headers`, `producer`, `sent_at`, `attempts`, `error_class`, `error`, `traceback`, `died_at`, `redriven_at`, `edited_at`, `group_id`, `partition_id`, `topic_id`) VALUES (4, 1, 4, 0x7b226e223a317d, 'json', 7, 'key-1', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', '192.0.2.2@12706@MainThread', '2026-11-24 22:28:08.942226', 1, 'ValueError', 'no account for <script>alert(1)</script>', 'Traceback (most recent call last):\n  File "/srv/shop/streams/consume/calling.py", line 83, in failures\n    return self.called(messages)\n           ^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/streams/consume/calling.py", line 98, in called\n    self._timed(message)\n  File "/srv/shop/streams/consume/calling.py", line 116, in _timed\n    returned = self._handler(argument)\n               ^^^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/streams/consume/calling.py", line 145, in _run\n    returned = registration.handler(argument)\n               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/tests/admin/world.py", line 110, in bill\n    raise ValueError(f"no account for {XSS}")\nValueError: no account for <script>alert(1)</script>\n', '2026-11-24 22:28:10.931383', NULL, NULL, 4, 1, 1);
INSERT INTO `ems_dead_msg` (`id`, `offset`, `message_id`, `body`, `body_type`, `size`, `key`, `tag`, `headers`, `producer`, `sent_at`, `attempts`, `error_class`, `error`, `traceback`, `died_at`, `redriven_at`, `edited_at`, `group_id`, `partition_id`, `topic_id`) VALUES (7, 2, 7, 0x74657874, 'text', 4, 'key-2', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', '192.0.2.2@12706@MainThread', '2026-11-24 22:28:08.967177', 1, 'ValueError', 'no account for <script>alert(1)</script>', 'Traceback (most recent call last):\n  File "/srv/shop/streams/consume/calling.py", line 83, in failures\n    return self.called(messages)\n           ^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/streams/consume/calling.py", line 98, in called\n    self._timed(message)\n  File "/srv/shop/streams/consume/calling.py", line 116, in _timed\n    returned = self._handler(argument)\n               ^^^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/streams/consume/calling.py", line 145, in _run\n    returned = registration.handler(argument)\n               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File "/srv/shop/tests/admin/world.py", line 110, in bill\n    raise ValueError(f"no account for {XSS}")\nValueError: no account for <script>alert(1)</script>\n', '2026-11-24 22:28:11.195249', NULL, NULL, 4, 1, 1);
CREATE TABLE `ems_dedup` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `key_hash` binary(32) NOT NULL,
  `message_id` bigint DEFAULT NULL,
  `partition` int unsigned NOT NULL,
  `expires_at` datetime(6) NOT NULL,
  `topic_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_dedup_key` (`topic_id`,`key_hash`),
  KEY `ems_dedup_expiry` (`expires_at`),
  KEY `ems_dedup_message` (`message_id`),
  CONSTRAINT `ems_dedup_chk_1` CHECK ((`partition` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_dedup` (`id`, `key_hash`, `message_id`, `partition`, `expires_at`, `topic_id`) VALUES (1, 0x1d9283d848ea941ace1fe0d2378ef8b70056a0d4d1648b95a322d90163e78285, 16, 0, '2026-11-24 22:38:12.487325', 1);
CREATE TABLE `ems_group` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `name` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `mode` varchar(9) NOT NULL,
  `ordered` tinyint(1) NOT NULL,
  `by_key` tinyint(1) NOT NULL DEFAULT '0',
  `hold_dead` tinyint(1) NOT NULL DEFAULT '0',
  `tags` json DEFAULT NULL,
  `rate_in_code` varchar(48) NOT NULL DEFAULT '',
  `start` varchar(32) NOT NULL,
  `max_retries` int unsigned DEFAULT NULL,
  `consume_timeout` int unsigned DEFAULT NULL,
  `batch` int unsigned DEFAULT NULL,
  `retry_policy` varchar(255) NOT NULL DEFAULT '',
  `rate` varchar(48) NOT NULL DEFAULT '',
  `paused` tinyint(1) NOT NULL,
  `paused_at` datetime(6) DEFAULT NULL,
  `created_at` datetime(6) NOT NULL,
  `topic_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_group_name` (`topic_id`,`name`),
  CONSTRAINT `ems_group_topic_id_d0f93e29_fk_ems_topic_id` FOREIGN KEY (`topic_id`) REFERENCES `ems_topic` (`id`),
  CONSTRAINT `ems_group_chk_1` CHECK ((`max_retries` >= 0)),
  CONSTRAINT `ems_group_chk_2` CHECK ((`consume_timeout` >= 0)),
  CONSTRAINT `ems_group_chk_3` CHECK ((`batch` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=13 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_group` (`id`, `name`, `mode`, `ordered`, `by_key`, `hold_dead`, `tags`, `rate_in_code`, `start`, `max_retries`, `consume_timeout`, `batch`, `retry_policy`, `rate`, `paused`, `paused_at`, `created_at`, `topic_id`) VALUES (1, 'mail', 'cluster', 0, 0, 0, NULL, '', 'earliest', NULL, NULL, NULL, '', '', 0, NULL, '2026-11-24 22:28:09.524367', 1);
INSERT INTO `ems_group` (`id`, `name`, `mode`, `ordered`, `by_key`, `hold_dead`, `tags`, `rate_in_code`, `start`, `max_retries`, `consume_timeout`, `batch`, `retry_policy`, `rate`, `paused`, `paused_at`, `created_at`, `topic_id`) VALUES (4, 'billing', 'cluster', 0, 0, 0, NULL, '', 'earliest', NULL, NULL, NULL, '', '', 0, NULL, '2026-11-24 22:28:09.784554', 1);
INSERT INTO `ems_group` (`id`, `name`, `mode`, `ordered`, `by_key`, `hold_dead`, `tags`, `rate_in_code`, `start`, `max_retries`, `consume_timeout`, `batch`, `retry_policy`, `rate`, `paused`, `paused_at`, `created_at`, `topic_id`) VALUES (7, 'slow', 'cluster', 0, 0, 0, NULL, '', 'earliest', NULL, NULL, NULL, '', '', 0, NULL, '2026-11-24 22:28:10.033689', 1);
INSERT INTO `ems_group` (`id`, `name`, `mode`, `ordered`, `by_key`, `hold_dead`, `tags`, `rate_in_code`, `start`, `max_retries`, `consume_timeout`, `batch`, `retry_policy`, `rate`, `paused`, `paused_at`, `created_at`, `topic_id`) VALUES (10, 'counter', 'cluster', 0, 0, 0, NULL, '', 'earliest', NULL, NULL, NULL, '', '', 0, NULL, '2026-11-24 22:28:14.279976', 4);
CREATE TABLE `ems_held_key` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `key_hash` bigint NOT NULL,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `head_offset` bigint NOT NULL,
  `dead` tinyint(1) NOT NULL DEFAULT '0',
  `held_at` datetime(6) NOT NULL,
  `group_id` bigint NOT NULL,
  `partition_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_held_key_place` (`group_id`,`partition_id`,`key_hash`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_held_key` (`id`, `key_hash`, `key`, `head_offset`, `dead`, `held_at`, `group_id`, `partition_id`) VALUES (1, 1, '<script>alert(1)</script>', 3, 0, '2026-11-24 22:28:13.200234', 7, 1);
CREATE TABLE `ems_key` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `offset` bigint NOT NULL,
  `partition_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_key_place` (`partition_id`,`offset`),
  KEY `ems_key_search` (`partition_id`,`key`,`offset`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_key` (`id`, `key`, `offset`, `partition_id`) VALUES (1, 'key-0', 0, 1);
CREATE TABLE `ems_monitoring_alarm` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `rule` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `metric` varchar(32) NOT NULL,
  `subject` varchar(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `topic` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `group` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `slot` smallint unsigned DEFAULT NULL,
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
  KEY `ems_alarm_resolved` (`resolved_at`),
  CONSTRAINT `ems_monitoring_alarm_chk_1` CHECK ((`slot` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_alarm` (`id`, `rule`, `metric`, `subject`, `topic`, `group`, `slot`, `severity`, `state`, `value`, `threshold`, `detail`, `runbook`, `since`, `fired_at`, `told_at`, `acknowledged_at`, `acknowledged_by`, `note`, `resolved_at`) VALUES (1, 'x', 'x', '', '', '', 0, 'x', 'pending', 0.0, 0.0, '', '', '2026-11-24 22:28:15.196708', '2026-11-24 22:28:15.195894', '2026-11-24 22:28:15.195921', '2026-11-24 22:28:15.195930', '', '', '2026-11-24 22:28:15.195946');
CREATE TABLE `ems_monitoring_alarm_channel` (
  `id` bigint NOT NULL AUTO_INCREMENT,
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
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_alarm_channel` (`id`, `name`, `kind`, `enabled`, `recipients`, `url`, `secret`, `allow_private`, `last_sent_at`, `last_failed_at`, `last_error`) VALUES (1, 'x', 'x', 1, '', '', '', 0, '2026-11-24 22:28:15.350115', '2026-11-24 22:28:15.350139', '');
CREATE TABLE `ems_monitoring_alarm_notification` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `uid` varchar(32) NOT NULL,
  `alarm_id` bigint DEFAULT NULL,
  `channel_id` bigint NOT NULL,
  `event` varchar(8) NOT NULL,
  `state` varchar(8) NOT NULL,
  `attempts` int unsigned NOT NULL,
  `created_at` datetime(6) NOT NULL,
  `due_at` datetime(6) NOT NULL,
  `sent_at` datetime(6) DEFAULT NULL,
  `error` varchar(500) NOT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_notification_due` (`state`,`due_at`),
  KEY `ems_notification_order` (`alarm_id`,`channel_id`,`state`),
  KEY `ems_notification_created` (`created_at`),
  CONSTRAINT `ems_monitoring_alarm_notification_chk_1` CHECK ((`attempts` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_alarm_notification` (`id`, `uid`, `alarm_id`, `channel_id`, `event`, `state`, `attempts`, `created_at`, `due_at`, `sent_at`, `error`) VALUES (1, 'afd902bee7d22fe2bc5f32ed0e136ecf', 1, 1, 'x', 'waiting', 0, '2026-11-24 22:28:15.431557', '2026-11-24 22:28:15.431557', '2026-11-24 22:28:15.402918', '');
CREATE TABLE `ems_monitoring_alarm_rule` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `name` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `metric` varchar(32) NOT NULL,
  `enabled` tinyint(1) DEFAULT NULL,
  `topic` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `group` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `operator` varchar(1) NOT NULL,
  `threshold` double DEFAULT NULL,
  `for_seconds` int unsigned DEFAULT NULL,
  `severity` varchar(8) NOT NULL,
  `remind_hours` int unsigned DEFAULT NULL,
  `muted_until` datetime(6) DEFAULT NULL,
  `runbook` varchar(500) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_alarm_rule_name` (`name`),
  CONSTRAINT `ems_monitoring_alarm_rule_chk_1` CHECK ((`for_seconds` >= 0)),
  CONSTRAINT `ems_monitoring_alarm_rule_chk_2` CHECK ((`remind_hours` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_alarm_rule` (`id`, `name`, `metric`, `enabled`, `topic`, `group`, `operator`, `threshold`, `for_seconds`, `severity`, `remind_hours`, `muted_until`, `runbook`) VALUES (1, 'x', 'x', 0, '', '', '>', 0.0, 1, '', 1, '2026-11-24 22:28:15.462380', '');
CREATE TABLE `ems_monitoring_alarm_rule_channel` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `alarmrule_id` bigint NOT NULL,
  `alarmchannel_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_monitoring_alarm_rul_alarmrule_id_alarmchanne_9540dc7a_uniq` (`alarmrule_id`,`alarmchannel_id`),
  KEY `ems_monitoring_alarm_alarmchannel_id_e1c1d137_fk_ems_monit` (`alarmchannel_id`),
  CONSTRAINT `ems_monitoring_alarm_alarmchannel_id_e1c1d137_fk_ems_monit` FOREIGN KEY (`alarmchannel_id`) REFERENCES `ems_monitoring_alarm_channel` (`id`),
  CONSTRAINT `ems_monitoring_alarm_alarmrule_id_4a9fb5f3_fk_ems_monit` FOREIGN KEY (`alarmrule_id`) REFERENCES `ems_monitoring_alarm_rule` (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_alarm_rule_channel` (`id`, `alarmrule_id`, `alarmchannel_id`) VALUES (1, 1, 1);
CREATE TABLE `ems_monitoring_archive` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `partition_id` bigint NOT NULL,
  `day` date NOT NULL,
  `topic` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `number` int unsigned NOT NULL,
  `first_offset` bigint NOT NULL,
  `end_offset` bigint NOT NULL,
  `messages` bigint NOT NULL,
  `bytes` bigint NOT NULL,
  `hash` varchar(40) NOT NULL,
  `path` varchar(1000) NOT NULL,
  `archived_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_archive_day` (`partition_id`,`day`),
  KEY `ems_archive_topic` (`topic`,`day`),
  CONSTRAINT `ems_monitoring_archive_chk_1` CHECK ((`number` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_archive` (`id`, `partition_id`, `day`, `topic`, `number`, `first_offset`, `end_offset`, `messages`, `bytes`, `hash`, `path`, `archived_at`) VALUES (1, 1, '2026-11-24', 'x', 1, 1, 1, 1, 1, 'x', 'x', '2026-11-24 22:28:15.572323');
CREATE TABLE `ems_monitoring_audit_place` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `namespace` varchar(16) NOT NULL,
  `stage` varchar(16) NOT NULL,
  `row` bigint NOT NULL,
  `offset` bigint NOT NULL,
  `seen_offset` bigint NOT NULL,
  `looked_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_audit_place_row` (`namespace`,`stage`,`row`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_audit_place` (`id`, `namespace`, `stage`, `row`, `offset`, `seen_offset`, `looked_at`) VALUES (1, '', 'x', 1, 0, 0, '2026-11-24 22:28:15.230592');
CREATE TABLE `ems_monitoring_backlog_level` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `grain` smallint unsigned NOT NULL,
  `start` datetime(6) NOT NULL,
  `group_id` bigint NOT NULL,
  `samples` int unsigned NOT NULL,
  `behind` bigint DEFAULT NULL,
  `least` bigint DEFAULT NULL,
  `waiting` bigint NOT NULL,
  `dead` bigint NOT NULL,
  `age_seconds` double DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_backlog_level_place` (`grain`,`start`,`group_id`),
  CONSTRAINT `ems_monitoring_backlog_level_chk_1` CHECK ((`grain` >= 0)),
  CONSTRAINT `ems_monitoring_backlog_level_chk_2` CHECK ((`samples` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_backlog_level` (`id`, `grain`, `start`, `group_id`, `samples`, `behind`, `least`, `waiting`, `dead`, `age_seconds`) VALUES (1, 1, '2026-11-24 22:28:16.457404', 1, 1, 1, 1, 1, 1, 0.0);
CREATE TABLE `ems_monitoring_consumption` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `group_id` bigint NOT NULL,
  `minute` datetime(6) NOT NULL,
  `client_id` varchar(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `thread` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `deliveries` bigint NOT NULL,
  `consumed` bigint NOT NULL,
  `failed` bigint NOT NULL,
  `retried` bigint NOT NULL,
  `dead` bigint NOT NULL,
  `lost` bigint NOT NULL,
  `missing` bigint NOT NULL,
  `passed` bigint NOT NULL,
  `busy_seconds` double NOT NULL,
  `longest_seconds` double NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_consumption_place` (`group_id`,`minute`,`client_id`,`thread`),
  KEY `ems_consumption_minute` (`minute`,`group_id`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_consumption` (`id`, `group_id`, `minute`, `client_id`, `thread`, `deliveries`, `consumed`, `failed`, `retried`, `dead`, `lost`, `missing`, `passed`, `busy_seconds`, `longest_seconds`) VALUES (1, 1, '2026-11-24 22:28:15.823672', 'x', 'x', 1, 1, 1, 1, 1, 1, 1, 1, 0.0, 0.0);
CREATE TABLE `ems_monitoring_consumption_level` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `grain` smallint unsigned NOT NULL,
  `start` datetime(6) NOT NULL,
  `group_id` bigint NOT NULL,
  `client_id` varchar(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `thread` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `deliveries` bigint NOT NULL,
  `consumed` bigint NOT NULL,
  `failed` bigint NOT NULL,
  `retried` bigint NOT NULL,
  `dead` bigint NOT NULL,
  `lost` bigint NOT NULL,
  `missing` bigint NOT NULL,
  `passed` bigint NOT NULL,
  `busy_seconds` double NOT NULL,
  `longest_seconds` double NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_consumption_level_place` (`grain`,`start`,`group_id`,`client_id`,`thread`),
  CONSTRAINT `ems_monitoring_consumption_level_chk_1` CHECK ((`grain` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_consumption_level` (`id`, `grain`, `start`, `group_id`, `client_id`, `thread`, `deliveries`, `consumed`, `failed`, `retried`, `dead`, `lost`, `missing`, `passed`, `busy_seconds`, `longest_seconds`) VALUES (1, 1, '2026-11-24 22:28:16.272146', 1, 'x', 'x', 1, 1, 1, 1, 1, 1, 1, 1, 0.0, 0.0);
CREATE TABLE `ems_monitoring_error` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `group_id` bigint NOT NULL,
  `minute` datetime(6) NOT NULL,
  `error_class` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `failed` bigint NOT NULL,
  `dead` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_error_place` (`group_id`,`minute`,`error_class`),
  KEY `ems_error_minute` (`minute`,`group_id`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_error` (`id`, `group_id`, `minute`, `error_class`, `failed`, `dead`) VALUES (1, 1, '2026-11-24 22:28:15.897469', 'x', 1, 1);
CREATE TABLE `ems_monitoring_error_level` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `grain` smallint unsigned NOT NULL,
  `start` datetime(6) NOT NULL,
  `group_id` bigint NOT NULL,
  `error_class` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `failed` bigint NOT NULL,
  `dead` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_error_level_place` (`grain`,`start`,`group_id`,`error_class`),
  CONSTRAINT `ems_monitoring_error_level_chk_1` CHECK ((`grain` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_error_level` (`id`, `grain`, `start`, `group_id`, `error_class`, `failed`, `dead`) VALUES (1, 1, '2026-11-24 22:28:16.416640', 1, 'x', 1, 1);
CREATE TABLE `ems_monitoring_finding` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `namespace` varchar(16) NOT NULL,
  `digest` binary(32) NOT NULL,
  `source` varchar(9) NOT NULL,
  `kind` varchar(32) NOT NULL,
  `place` varchar(300) NOT NULL,
  `detail` varchar(500) NOT NULL,
  `count` int unsigned NOT NULL,
  `found_at` datetime(6) NOT NULL,
  `seen_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_finding_digest` (`namespace`,`digest`),
  KEY `ems_finding_seen` (`seen_at`),
  CONSTRAINT `ems_monitoring_finding_chk_1` CHECK ((`count` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_finding` (`id`, `namespace`, `digest`, `source`, `kind`, `place`, `detail`, `count`, `found_at`, `seen_at`) VALUES (1, '', 0x00ff000000000000000000000000000000000000000000000000000000000000, 'audit', 'x', 'x', 'x', 1, '2026-11-24 22:28:15.264323', '2026-11-24 22:28:15.264323');
CREATE TABLE `ems_monitoring_hot_key` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `topic_id` bigint NOT NULL,
  `hour` datetime(6) NOT NULL,
  `place` int unsigned NOT NULL,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `messages` bigint NOT NULL,
  `bytes` bigint NOT NULL,
  `share` double NOT NULL,
  `total` bigint NOT NULL DEFAULT '0',
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_hot_key_place` (`topic_id`,`hour`,`place`),
  KEY `ems_hot_key_hour` (`hour`),
  CONSTRAINT `ems_monitoring_hot_key_chk_1` CHECK ((`place` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_hot_key` (`id`, `topic_id`, `hour`, `place`, `key`, `messages`, `bytes`, `share`, `total`) VALUES (1, 1, '2026-11-24 22:28:15.965782', 1, 'x', 1, 1, 0.0, 0);
CREATE TABLE `ems_monitoring_lake` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `topic` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `day` date NOT NULL,
  `path` varchar(1000) NOT NULL,
  `messages` bigint NOT NULL,
  `bytes` bigint NOT NULL,
  `size` bigint NOT NULL,
  `version` int unsigned NOT NULL,
  `added_at` datetime(6) NOT NULL,
  `retired_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_lake_day` (`topic`,`day`),
  KEY `ems_lake_retired` (`retired_at`),
  CONSTRAINT `ems_monitoring_lake_chk_1` CHECK ((`version` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_lake` (`id`, `topic`, `day`, `path`, `messages`, `bytes`, `size`, `version`, `added_at`, `retired_at`) VALUES (1, 'x', '2026-11-24', 'x', 1, 1, 1, 1, '2026-11-24 22:28:15.993812', '2026-11-24 22:28:15.993268');
CREATE TABLE `ems_monitoring_lake_position` (
  `partition_id` bigint NOT NULL,
  `first_offset` bigint NOT NULL,
  `next_offset` bigint NOT NULL,
  PRIMARY KEY (`partition_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_lake_position` (`partition_id`, `first_offset`, `next_offset`) VALUES (1, 1, 1);
CREATE TABLE `ems_monitoring_latency` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `group_id` bigint NOT NULL,
  `minute` datetime(6) NOT NULL,
  `leg` varchar(9) NOT NULL,
  `messages` bigint NOT NULL,
  `mean` double NOT NULL,
  `p50` double NOT NULL,
  `p95` double NOT NULL,
  `p99` double NOT NULL,
  `worst` double NOT NULL,
  `histogram` longtext NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_latency_place` (`group_id`,`minute`,`leg`),
  KEY `ems_latency_minute` (`minute`,`group_id`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_latency` (`id`, `group_id`, `minute`, `leg`, `messages`, `mean`, `p50`, `p95`, `p99`, `worst`, `histogram`) VALUES (1, 1, '2026-11-24 22:28:16.154122', 'x', 1, 0.0, 0.0, 0.0, 0.0, 0.0, 'text');
CREATE TABLE `ems_monitoring_latency_level` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `grain` smallint unsigned NOT NULL,
  `start` datetime(6) NOT NULL,
  `group_id` bigint NOT NULL,
  `leg` varchar(9) NOT NULL,
  `messages` bigint NOT NULL,
  `mean` double NOT NULL,
  `worst` double NOT NULL,
  `histogram` longtext NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_latency_level_place` (`grain`,`start`,`group_id`,`leg`),
  CONSTRAINT `ems_monitoring_latency_level_chk_1` CHECK ((`grain` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_latency_level` (`id`, `grain`, `start`, `group_id`, `leg`, `messages`, `mean`, `worst`, `histogram`) VALUES (1, 1, '2026-11-24 22:28:16.344502', 1, 'x', 1, 0.0, 0.0, 'text');
CREATE TABLE `ems_monitoring_ledger` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `name` varchar(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `batch` bigint NOT NULL,
  `done_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_ledger_name` (`name`,`batch`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_ledger` (`id`, `name`, `batch`, `done_at`) VALUES (1, 'x', 1, '2026-11-24 22:28:15.638759');
CREATE TABLE `ems_monitoring_mark` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `namespace` varchar(16) NOT NULL,
  `kind` varchar(16) NOT NULL,
  `at` datetime(6) NOT NULL,
  `until` datetime(6) NOT NULL,
  `topic_id` bigint DEFAULT NULL,
  `groups` json NOT NULL,
  `count` int unsigned NOT NULL,
  `text` varchar(500) NOT NULL,
  `who` varchar(190) NOT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_mark_at` (`at`),
  CONSTRAINT `ems_monitoring_mark_chk_1` CHECK ((`count` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_mark` (`id`, `namespace`, `kind`, `at`, `until`, `topic_id`, `groups`, `count`, `text`, `who`) VALUES (1, '', 'x', '2026-11-24 22:28:16.492903', '2026-11-24 22:28:16.492903', 1, '[]', 1, '', '');
CREATE TABLE `ems_monitoring_open` (
  `delivery_id` bigint NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`delivery_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_open` (`delivery_id`, `finished_at`) VALUES (1, '2026-11-24 22:28:16.512179');
CREATE TABLE `ems_monitoring_position` (
  `partition_id` bigint NOT NULL,
  `open_offset` bigint NOT NULL,
  `next_offset` bigint NOT NULL,
  PRIMARY KEY (`partition_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_position` (`partition_id`, `open_offset`, `next_offset`) VALUES (1, 1, 1);
CREATE TABLE `ems_monitoring_replay` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `replay` varchar(32) NOT NULL,
  `source` int unsigned NOT NULL,
  `offset` bigint NOT NULL,
  `target` int unsigned NOT NULL,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `tag` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `headers` longtext,
  `body` longblob NOT NULL,
  `body_type` varchar(5) NOT NULL,
  `size` int unsigned NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_replay_place` (`replay`,`source`,`offset`),
  CONSTRAINT `ems_monitoring_replay_chk_1` CHECK ((`source` >= 0)),
  CONSTRAINT `ems_monitoring_replay_chk_2` CHECK ((`target` >= 0)),
  CONSTRAINT `ems_monitoring_replay_chk_3` CHECK ((`size` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_replay` (`id`, `replay`, `source`, `offset`, `target`, `key`, `tag`, `headers`, `body`, `body_type`, `size`) VALUES (1, 'x', 1, 1, 1, 'x', 'x', 'text', 0x00ff, 'x', 1);
CREATE TABLE `ems_monitoring_run` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `job` varchar(32) NOT NULL,
  `state` varchar(7) NOT NULL,
  `since` datetime(6) DEFAULT NULL,
  `until` datetime(6) DEFAULT NULL,
  `resume_at` datetime(6) DEFAULT NULL,
  `read` bigint DEFAULT NULL,
  `rows` bigint DEFAULT NULL,
  `missed` bigint NOT NULL,
  `seconds` double DEFAULT NULL,
  `about` varchar(500) NOT NULL DEFAULT '',
  `error` longtext NOT NULL,
  `started_at` datetime(6) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_run_job` (`job`,`state`,`id`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_run` (`id`, `job`, `state`, `since`, `until`, `resume_at`, `read`, `rows`, `missed`, `seconds`, `about`, `error`, `started_at`, `finished_at`) VALUES (1, 'x', 'running', '2026-11-24 22:28:16.605705', '2026-11-24 22:28:16.605733', '2026-11-24 22:28:16.605741', 1, 1, 0, 0.0, '', '', '2026-11-24 22:28:16.607215', '2026-11-24 22:28:16.605874');
CREATE TABLE `ems_monitoring_sample` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `minute` datetime(6) NOT NULL,
  `taken_at` datetime(6) NOT NULL,
  `grain` smallint unsigned NOT NULL,
  `partition_id` bigint NOT NULL,
  `first_offset` bigint NOT NULL,
  `next_offset` bigint NOT NULL,
  `inbox` bigint NOT NULL,
  `inbox_age_seconds` double DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_sample_place` (`partition_id`,`minute`),
  KEY `ems_sample_minute` (`grain`,`minute`),
  CONSTRAINT `ems_monitoring_sample_chk_1` CHECK ((`grain` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_sample` (`id`, `minute`, `taken_at`, `grain`, `partition_id`, `first_offset`, `next_offset`, `inbox`, `inbox_age_seconds`) VALUES (1, '2026-11-24 22:28:16.642821', '2026-11-24 22:28:16.642850', 1, 1, 1, 1, 1, 0.0);
CREATE TABLE `ems_monitoring_sample_group` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `minute` datetime(6) NOT NULL,
  `taken_at` datetime(6) NOT NULL,
  `grain` smallint unsigned NOT NULL,
  `group_id` bigint NOT NULL,
  `behind` bigint DEFAULT NULL,
  `open` bigint NOT NULL,
  `waiting` bigint NOT NULL,
  `dead` bigint NOT NULL,
  `done` bigint DEFAULT NULL,
  `consumers` int unsigned NOT NULL,
  `blocked` int unsigned NOT NULL,
  `age_seconds` double DEFAULT NULL,
  `reset_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_sample_group_place` (`group_id`,`minute`),
  KEY `ems_sample_group_minute` (`grain`,`minute`),
  CONSTRAINT `ems_monitoring_sample_group_chk_1` CHECK ((`grain` >= 0)),
  CONSTRAINT `ems_monitoring_sample_group_chk_2` CHECK ((`consumers` >= 0)),
  CONSTRAINT `ems_monitoring_sample_group_chk_3` CHECK ((`blocked` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_sample_group` (`id`, `minute`, `taken_at`, `grain`, `group_id`, `behind`, `open`, `waiting`, `dead`, `done`, `consumers`, `blocked`, `age_seconds`, `reset_at`) VALUES (1, '2026-11-24 22:28:16.686353', '2026-11-24 22:28:16.686377', 1, 1, 1, 1, 1, 1, 1, 1, 0, 0.0, '2026-11-24 22:28:16.708274');
CREATE TABLE `ems_monitoring_staged` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `mark` varchar(32) NOT NULL,
  `topic_id` bigint NOT NULL,
  `partition_id` bigint NOT NULL,
  `due_at` datetime(6) DEFAULT NULL,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `tag` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `headers` longtext,
  `body` longblob NOT NULL,
  `body_type` varchar(5) NOT NULL,
  `size` int unsigned NOT NULL,
  `dedup_hash` binary(32) DEFAULT NULL,
  `staged_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_staged_mark` (`mark`),
  CONSTRAINT `ems_monitoring_staged_chk_1` CHECK ((`size` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_staged` (`id`, `mark`, `topic_id`, `partition_id`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `dedup_hash`, `staged_at`) VALUES (1, 'x', 1, 1, '2026-11-24 22:28:15.719612', 'x', 'x', 'text', 0x00ff, 'x', 1, 0x00ff000000000000000000000000000000000000000000000000000000000000, '2026-11-24 22:28:15.728240');
CREATE TABLE `ems_monitoring_traffic` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `partition_id` bigint NOT NULL,
  `minute` datetime(6) NOT NULL,
  `first_offset` bigint NOT NULL,
  `end_offset` bigint NOT NULL,
  `messages` bigint NOT NULL,
  `bytes` bigint NOT NULL,
  `keys` bigint NOT NULL,
  `delayed` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_traffic_place` (`partition_id`,`first_offset`),
  KEY `ems_traffic_minute` (`minute`,`partition_id`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_traffic` (`id`, `partition_id`, `minute`, `first_offset`, `end_offset`, `messages`, `bytes`, `keys`, `delayed`) VALUES (1, 1, '2026-11-24 22:28:16.744619', 1, 1, 1, 1, 1, 1);
CREATE TABLE `ems_monitoring_traffic_level` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `grain` smallint unsigned NOT NULL,
  `start` datetime(6) NOT NULL,
  `partition_id` bigint NOT NULL,
  `messages` bigint NOT NULL,
  `bytes` bigint NOT NULL,
  `delayed` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_traffic_level_place` (`grain`,`start`,`partition_id`),
  CONSTRAINT `ems_monitoring_traffic_level_chk_1` CHECK ((`grain` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_monitoring_traffic_level` (`id`, `grain`, `start`, `partition_id`, `messages`, `bytes`, `delayed`) VALUES (1, 1, '2026-11-24 22:28:16.174380', 1, 1, 1, 1);
CREATE TABLE `ems_move` (
  `id` bigint NOT NULL AUTO_INCREMENT,
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
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_move` (`id`, `name`, `token`, `source`, `target`, `access`, `who`, `started_at`, `finished_at`) VALUES (1, 'orders', 't', 'old', 'default', 'read-write', '<script>alert(1)</script>', '2026-11-24 22:28:13.039282', NULL);
CREATE TABLE `ems_msg` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `offset` bigint DEFAULT NULL,
  `due_at` datetime(6) DEFAULT NULL,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `tag` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `headers` json DEFAULT NULL,
  `body` longblob NOT NULL,
  `body_type` varchar(5) NOT NULL,
  `size` int unsigned NOT NULL,
  `producer` varchar(190) NOT NULL,
  `created_at` datetime(6) NOT NULL,
  `sequenced_at` datetime(6) DEFAULT NULL,
  `partition_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_msg_log` (`partition_id`,`offset`),
  KEY `ems_msg_inbox` (`partition_id`,`offset`,`due_at`),
  CONSTRAINT `ems_msg_chk_1` CHECK ((`size` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=79 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (1, 0, '1970-01-01 00:00:00', 'key-0', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', 0x7b226e6f7465223a227468652d626f64792d6f662d7468652d6d657373616765203c7363726970743e616c6572742831293c2f7363726970743e227d, 'json', 60, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:08.921728', '2026-11-24 22:28:10.197540', 1);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (4, 1, '1970-01-01 00:00:00', 'key-1', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', 0x7b226e223a317d, 'json', 7, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:08.942226', '2026-11-24 22:28:10.197540', 1);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (7, 2, '1970-01-01 00:00:00', 'key-2', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', 0x74657874, 'text', 4, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:08.967177', '2026-11-24 22:28:10.197540', 1);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (10, 3, '1970-01-01 00:00:00', 'key-3', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', 0x00ff, 'bytes', 2, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:08.991140', '2026-11-24 22:28:10.197540', 1);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (13, 4, '1970-01-01 00:00:00', 'key-4', '<script>alert(1)</sc', '{"trace": "<script>alert(1)</script>"}', 0x7b226e223a347d, 'json', 7, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:09.002500', '2026-11-24 22:28:10.197540', 1);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (16, NULL, '2026-11-25 22:28:12.467053', NULL, '', NULL, 0x6c61746572, 'text', 5, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:12.467053', NULL, 1);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (19, 0, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d30227d, 'json', 14, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.029799', '2026-11-24 22:28:14.377597', 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (22, 1, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d31227d, 'json', 14, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.048984', '2026-11-24 22:28:14.377597', 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (25, 2, '1970-01-01 00:00:00', 'key-2', '', NULL, 0x7b226e223a226b6570742d32227d, 'json', 14, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.051965', '2026-11-24 22:28:14.377597', 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (28, 3, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d33227d, 'json', 14, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.063943', '2026-11-24 22:28:14.377597', 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (31, 4, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d34227d, 'json', 14, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.091716', '2026-11-24 22:28:14.377597', 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (34, 5, '1970-01-01 00:00:00', 'key-2', '', NULL, 0x7b226e223a226b6570742d35227d, 'json', 14, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.104316', '2026-11-24 22:28:14.377597', 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (37, 6, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d36227d, 'json', 14, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.109503', '2026-11-24 22:28:14.377597', 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (40, 7, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d37227d, 'json', 14, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.121623', '2026-11-24 22:28:14.377597', 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (43, 8, '1970-01-01 00:00:00', 'key-2', '', NULL, 0x7b226e223a226b6570742d38227d, 'json', 14, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.127578', '2026-11-24 22:28:14.377597', 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (46, 9, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d39227d, 'json', 14, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.129059', '2026-11-24 22:28:14.377597', 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (49, NULL, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d3130227d, 'json', 15, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.650061', NULL, 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (52, NULL, '1970-01-01 00:00:00', 'key-2', '', NULL, 0x7b226e223a226b6570742d3131227d, 'json', 15, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.683549', NULL, 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (55, NULL, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d3132227d, 'json', 15, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.694229', NULL, 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (58, NULL, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d3133227d, 'json', 15, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.724124', NULL, 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (61, NULL, '1970-01-01 00:00:00', 'key-2', '', NULL, 0x7b226e223a226b6570742d3134227d, 'json', 15, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.737159', NULL, 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (64, NULL, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d3135227d, 'json', 15, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.773005', NULL, 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (67, NULL, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d3136227d, 'json', 15, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.792715', NULL, 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (70, NULL, '1970-01-01 00:00:00', 'key-2', '', NULL, 0x7b226e223a226b6570742d3137227d, 'json', 15, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.807947', NULL, 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (73, NULL, '1970-01-01 00:00:00', 'key-0', '', NULL, 0x7b226e223a226b6570742d3138227d, 'json', 15, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.830039', NULL, 4);
INSERT INTO `ems_msg` (`id`, `offset`, `due_at`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `producer`, `created_at`, `sequenced_at`, `partition_id`) VALUES (76, NULL, '1970-01-01 00:00:00', 'key-1', '', NULL, 0x7b226e223a226b6570742d3139227d, 'json', 15, '192.0.2.2@12706@MainThread', '2026-11-24 22:28:14.852683', NULL, 4);
CREATE TABLE `ems_partition` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `number` int unsigned NOT NULL,
  `next_offset` bigint NOT NULL,
  `first_offset` bigint NOT NULL,
  `archived_offset` bigint NOT NULL DEFAULT '0',
  `keys_from` bigint DEFAULT NULL,
  `epoch` int unsigned NOT NULL DEFAULT '0',
  `server` varchar(64) NOT NULL DEFAULT '',
  `last_sequenced_at` datetime(6) DEFAULT NULL,
  `topic_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_partition_number` (`topic_id`,`number`),
  CONSTRAINT `ems_partition_topic_id_0578e9ce_fk_ems_topic_id` FOREIGN KEY (`topic_id`) REFERENCES `ems_topic` (`id`),
  CONSTRAINT `ems_partition_chk_1` CHECK ((`number` >= 0)),
  CONSTRAINT `ems_partition_chk_2` CHECK ((`epoch` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_partition` (`id`, `number`, `next_offset`, `first_offset`, `archived_offset`, `keys_from`, `epoch`, `server`, `last_sequenced_at`, `topic_id`) VALUES (1, 0, 5, 0, 0, NULL, 0, '8095cafc-e853-11f1-aa51-02fc00000001', '2026-11-24 22:28:10.197540', 1);
INSERT INTO `ems_partition` (`id`, `number`, `next_offset`, `first_offset`, `archived_offset`, `keys_from`, `epoch`, `server`, `last_sequenced_at`, `topic_id`) VALUES (4, 0, 10, 0, 0, NULL, 0, '8095cafc-e853-11f1-aa51-02fc00000001', '2026-11-24 22:28:14.377597', 4);
CREATE TABLE `ems_prepared` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `biz` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `biz_key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `state` varchar(11) NOT NULL,
  `topic` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `partition` int unsigned DEFAULT NULL,
  `key` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `tag` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `headers` json DEFAULT NULL,
  `body` longblob NOT NULL,
  `body_type` varchar(5) NOT NULL,
  `size` int unsigned NOT NULL,
  `digest` binary(32) NOT NULL,
  `producer` varchar(190) NOT NULL,
  `checker` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `context` json DEFAULT NULL,
  `checks` int unsigned NOT NULL,
  `sends` int unsigned NOT NULL,
  `next_at` datetime(6) DEFAULT NULL,
  `checked_at` datetime(6) DEFAULT NULL,
  `last_answer` varchar(8) NOT NULL,
  `last_error` varchar(1000) NOT NULL,
  `decided_at` datetime(6) DEFAULT NULL,
  `decided_by` varchar(190) NOT NULL,
  `disputed_at` datetime(6) DEFAULT NULL,
  `message_id` bigint DEFAULT NULL,
  `sent_partition` int unsigned DEFAULT NULL,
  `sent_at` datetime(6) DEFAULT NULL,
  `created_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_prepared_key` (`biz`,`biz_key`),
  KEY `ems_prepared_due` (`state`,`checker`,`next_at`),
  KEY `ems_prepared_topic` (`topic`,`state`),
  KEY `ems_prepared_decided` (`decided_at`),
  KEY `ems_prepared_disputed` (`disputed_at`),
  CONSTRAINT `ems_prepared_chk_1` CHECK ((`partition` >= 0)),
  CONSTRAINT `ems_prepared_chk_2` CHECK ((`size` >= 0)),
  CONSTRAINT `ems_prepared_chk_3` CHECK ((`checks` >= 0)),
  CONSTRAINT `ems_prepared_chk_4` CHECK ((`sends` >= 0)),
  CONSTRAINT `ems_prepared_chk_5` CHECK ((`sent_partition` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_prepared` (`id`, `biz`, `biz_key`, `state`, `topic`, `partition`, `key`, `tag`, `headers`, `body`, `body_type`, `size`, `digest`, `producer`, `checker`, `context`, `checks`, `sends`, `next_at`, `checked_at`, `last_answer`, `last_error`, `decided_at`, `decided_by`, `disputed_at`, `message_id`, `sent_partition`, `sent_at`, `created_at`) VALUES (1, 'shop', 'A7', 'PREPARED', 'orders', NULL, NULL, '', NULL, 0x7468652d626f64792d6f662d7468652d6d657373616765, 'text', 23, 0x3030303030303030303030303030303030303030303030303030303030303030, 'p', 'shop.order', '{"note": "<script>alert(1)</script>"}', 0, 0, '2026-11-24 23:28:12.742331', NULL, '', '<script>alert(1)</script>', NULL, '', NULL, NULL, NULL, NULL, '2026-11-24 22:28:12.742331');
CREATE TABLE `ems_rate` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `next_slot` bigint NOT NULL,
  `taken` int unsigned NOT NULL,
  `group_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_rate_place` (`group_id`),
  CONSTRAINT `ems_rate_chk_1` CHECK ((`taken` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_rate` (`id`, `next_slot`, `taken`, `group_id`) VALUES (1, 0, 0, 1);
CREATE TABLE `ems_rate_key` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `key_hash` bigint NOT NULL,
  `next_slot` bigint NOT NULL,
  `queued_until` bigint NOT NULL,
  `group_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_rate_key_place` (`group_id`,`key_hash`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_rate_key` (`id`, `key_hash`, `next_slot`, `queued_until`, `group_id`) VALUES (1, 1, 0, 0, 1);
CREATE TABLE `ems_reader` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `checkpoint` varchar(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `name` varchar(127) NOT NULL,
  `protect` tinyint(1) NOT NULL,
  `positions` json NOT NULL,
  `total` bigint NOT NULL,
  `first_seen_at` datetime(6) NOT NULL,
  `seen_at` datetime(6) NOT NULL,
  `before_total` bigint NOT NULL,
  `before_at` datetime(6) NOT NULL,
  `topic_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_reader_topic` (`topic_id`,`checkpoint`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_reader` (`id`, `checkpoint`, `name`, `protect`, `positions`, `total`, `first_seen_at`, `seen_at`, `before_total`, `before_at`, `topic_id`) VALUES (1, 'c', '<script>alert(1)</script>', 0, '{}', 0, '2026-11-24 22:28:13.090588', '2026-11-24 22:28:13.090588', 0, '2026-11-24 22:28:13.090588', 1);
CREATE TABLE `ems_redrive` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `namespace` varchar(16) NOT NULL,
  `about` varchar(255) NOT NULL,
  `groups` json NOT NULL,
  `error_class` varchar(255) NOT NULL,
  `ids` json DEFAULT NULL,
  `upto` bigint NOT NULL,
  `rate` double NOT NULL,
  `state` varchar(7) NOT NULL,
  `total` bigint DEFAULT NULL,
  `after` bigint NOT NULL,
  `done` bigint NOT NULL,
  `skipped` bigint NOT NULL,
  `who` varchar(255) NOT NULL,
  `created_at` datetime(6) NOT NULL,
  `stepped_at` datetime(6) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_redrive_state` (`state`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_redrive` (`id`, `namespace`, `about`, `groups`, `error_class`, `ids`, `upto`, `rate`, `state`, `total`, `after`, `done`, `skipped`, `who`, `created_at`, `stepped_at`, `finished_at`) VALUES (1, '', 'billing on orders', '[4]', '', NULL, 7, 1.0, 'stopped', NULL, 0, 0, 0, 'ann', '2026-11-24 22:28:12.934964', '2026-11-24 22:28:12.934964', NULL);
CREATE TABLE `ems_retry_msg` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `offset` bigint NOT NULL,
  `attempt` int unsigned NOT NULL,
  `due_at` datetime(6) DEFAULT NULL,
  `key_hash` bigint DEFAULT NULL,
  `again` tinyint(1) NOT NULL,
  `alone` tinyint(1) NOT NULL,
  `last_error` varchar(1000) NOT NULL,
  `dead_letter_id` bigint DEFAULT NULL,
  `delivery_id` bigint DEFAULT NULL,
  `group_id` bigint NOT NULL,
  `partition_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_retry_place` (`group_id`,`partition_id`,`offset`),
  KEY `ems_retry_due` (`group_id`,`delivery_id`,`due_at`),
  KEY `ems_retry_key` (`group_id`,`partition_id`,`key_hash`,`offset`),
  CONSTRAINT `ems_retry_msg_chk_1` CHECK ((`attempt` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_retry_msg` (`id`, `offset`, `attempt`, `due_at`, `key_hash`, `again`, `alone`, `last_error`, `dead_letter_id`, `delivery_id`, `group_id`, `partition_id`) VALUES (1, 3, 2, '2026-11-24 22:28:22.937262', NULL, 0, 0, 'TimeoutError: the bank does not answer', NULL, NULL, 7, 1);
INSERT INTO `ems_retry_msg` (`id`, `offset`, `attempt`, `due_at`, `key_hash`, `again`, `alone`, `last_error`, `dead_letter_id`, `delivery_id`, `group_id`, `partition_id`) VALUES (4, 4, 2, '2026-11-24 22:28:19.944481', NULL, 0, 0, 'TimeoutError: the bank does not answer', NULL, NULL, 7, 1);
CREATE TABLE `ems_rewind` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `epoch` int unsigned NOT NULL,
  `first_offset` bigint NOT NULL,
  `known_offset` bigint NOT NULL,
  `next_offset` bigint NOT NULL,
  `noticed_at` datetime(6) NOT NULL,
  `noticed_by` varchar(190) NOT NULL,
  `partition_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_rewind_place` (`partition_id`,`epoch`),
  KEY `ems_rewind_noticed` (`noticed_at`),
  CONSTRAINT `ems_rewind_chk_1` CHECK ((`epoch` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_rewind` (`id`, `epoch`, `first_offset`, `known_offset`, `next_offset`, `noticed_at`, `noticed_by`, `partition_id`) VALUES (1, 1, 5, 7, 1007, '2026-09-25 22:28:13.023098', '<script>alert(1)</script>', 1);
CREATE TABLE `ems_step` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `name` varchar(32) NOT NULL,
  `last_run_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_step_name` (`name`)
) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_step` (`id`, `name`, `last_run_at`) VALUES (1, 'sequence', '2026-11-24 22:28:13.938759');
INSERT INTO `ems_step` (`id`, `name`, `last_run_at`) VALUES (4, 'sweep', '2026-11-24 22:28:13.938759');
CREATE TABLE `ems_stress_run` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `namespace` varchar(16) NOT NULL,
  `load` json NOT NULL,
  `result` json DEFAULT NULL,
  `error` varchar(1000) NOT NULL,
  `who` varchar(255) NOT NULL,
  `started_at` datetime(6) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_stress_run` (`id`, `namespace`, `load`, `result`, `error`, `who`, `started_at`, `finished_at`) VALUES (1, '', '{"messages": 10}', NULL, '<script>alert(1)</script>', '<script>alert(1)</script>', '2026-11-24 22:28:13.251936', NULL);
CREATE TABLE `ems_system_config` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `name` varchar(64) NOT NULL,
  `value` json NOT NULL,
  `updated_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_system_config_name` (`name`)
) ENGINE=InnoDB AUTO_INCREMENT=13 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_system_config` (`id`, `name`, `value`, `updated_at`) VALUES (10, 'consumerBatchSize', '20', '2026-11-24 22:28:12.641930');
CREATE TABLE `ems_task` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `result_id` varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `message_id` bigint NOT NULL,
  `partition` int DEFAULT NULL,
  `offset` bigint DEFAULT NULL,
  `backend` varchar(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `queue` varchar(121) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `path` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `priority` smallint NOT NULL,
  `arguments` json NOT NULL,
  `run_after` datetime(6) DEFAULT NULL,
  `status` varchar(10) NOT NULL,
  `enqueued_at` datetime(6) NOT NULL,
  `started_at` datetime(6) DEFAULT NULL,
  `last_attempted_at` datetime(6) DEFAULT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  `cancelled_at` datetime(6) DEFAULT NULL,
  `attempts` int NOT NULL,
  `attempts_before` int NOT NULL,
  `token` bigint NOT NULL,
  `worker_ids` json NOT NULL,
  `errors` json NOT NULL,
  `return_value` json DEFAULT NULL,
  `metadata` json NOT NULL,
  `copies` int NOT NULL,
  `batch_id` bigint DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_task_result` (`result_id`),
  KEY `ems_task_ended` (`status`,`finished_at`),
  KEY `ems_task_queue` (`queue`,`status`,`enqueued_at`),
  KEY `ems_task_path` (`path`,`status`),
  KEY `ems_task_message` (`message_id`),
  KEY `ems_task_of_batch` (`batch_id`,`status`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_task` (`id`, `result_id`, `message_id`, `partition`, `offset`, `backend`, `queue`, `path`, `priority`, `arguments`, `run_after`, `status`, `enqueued_at`, `started_at`, `last_attempted_at`, `finished_at`, `cancelled_at`, `attempts`, `attempts_before`, `token`, `worker_ids`, `errors`, `return_value`, `metadata`, `copies`, `batch_id`) VALUES (1, 'x', 1, 1, 1, 'x', 'x', 'x', 0, '{}', '2026-11-24 22:28:16.810649', 'x', '2026-11-24 22:28:16.810680', '2026-11-24 22:28:16.810688', '2026-11-24 22:28:16.810695', '2026-11-24 22:28:16.810700', '2026-11-24 22:28:16.810706', 0, 0, 0, '[]', '[]', '{}', '{}', 0, 1);
CREATE TABLE `ems_task_batch` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `backend` varchar(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `total` int NOT NULL,
  `on_success` json DEFAULT NULL,
  `on_failure` json DEFAULT NULL,
  `created_at` datetime(6) NOT NULL,
  `check_at` datetime(6) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  `failed` int DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_task_batch_next` (`finished_at`,`check_at`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_task_batch` (`id`, `backend`, `total`, `on_success`, `on_failure`, `created_at`, `check_at`, `finished_at`, `failed`) VALUES (1, 'x', 1, '{}', '{}', '2026-11-24 22:28:16.783089', '2026-11-24 22:28:16.783089', '2026-11-24 22:28:16.779484', 1);
CREATE TABLE `ems_task_schedule` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `name` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `paused` tinyint(1) NOT NULL,
  `last_tick_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_task_schedule_name` (`name`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_task_schedule` (`id`, `name`, `paused`, `last_tick_at`) VALUES (1, 'x', 0, '2026-11-24 22:28:16.863790');
CREATE TABLE `ems_task_slot` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `key_hash` binary(32) NOT NULL,
  `number` int NOT NULL,
  `token` bigint NOT NULL,
  `topic` bigint NOT NULL,
  `partition` int NOT NULL,
  `offset` bigint NOT NULL,
  `taken_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_task_slot_place` (`key_hash`,`number`)
) ENGINE=InnoDB AUTO_INCREMENT=4 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_task_slot` (`id`, `key_hash`, `number`, `token`, `topic`, `partition`, `offset`, `taken_at`) VALUES (1, 0x00ff000000000000000000000000000000000000000000000000000000000000, 1, 0, 0, 0, 0, '2026-11-24 22:28:16.887626');
CREATE TABLE `ems_topic` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `name` varchar(127) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  `access` varchar(10) NOT NULL,
  `retention_seconds` bigint unsigned DEFAULT NULL,
  `retention_count` bigint unsigned DEFAULT NULL,
  `retention_consumed` tinyint(1) NOT NULL DEFAULT '0',
  `archive` tinyint(1) NOT NULL DEFAULT '0',
  `index_keys` tinyint(1) NOT NULL DEFAULT '0',
  `created_at` datetime(6) NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `ems_topic_name` (`name`),
  CONSTRAINT `ems_topic_chk_1` CHECK ((`retention_seconds` >= 0)),
  CONSTRAINT `ems_topic_chk_2` CHECK ((`retention_count` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_topic` (`id`, `name`, `access`, `retention_seconds`, `retention_count`, `retention_consumed`, `archive`, `index_keys`, `created_at`) VALUES (1, 'orders', 'read-write', NULL, NULL, 0, 0, 0, '2026-11-24 22:28:08.831355');
INSERT INTO `ems_topic` (`id`, `name`, `access`, `retention_seconds`, `retention_count`, `retention_consumed`, `archive`, `index_keys`, `created_at`) VALUES (4, 'upgrade', 'read-write', NULL, NULL, 0, 0, 0, '2026-11-24 22:28:13.994855');
CREATE TABLE `ems_topic_group_log` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `first_offset` bigint NOT NULL,
  `last_offset` bigint NOT NULL,
  `progress` bigint NOT NULL,
  `kind` varchar(6) NOT NULL,
  `attempt` int unsigned NOT NULL,
  `client_id` varchar(190) NOT NULL,
  `thread` varchar(64) NOT NULL,
  `token` varchar(32) NOT NULL,
  `state` varchar(8) NOT NULL,
  `claimed_at` datetime(6) NOT NULL,
  `started_at` datetime(6) DEFAULT NULL,
  `deadline` datetime(6) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  `failed` int unsigned NOT NULL,
  `dead` int unsigned NOT NULL,
  `missing` int unsigned NOT NULL,
  `passed` int unsigned NOT NULL DEFAULT '0',
  `error` varchar(1000) NOT NULL,
  `parked` longtext,
  `errors` longtext,
  `settled` bigint unsigned DEFAULT NULL,
  `group_id` bigint NOT NULL,
  `partition_id` bigint NOT NULL,
  PRIMARY KEY (`id`),
  KEY `ems_log_place` (`group_id`,`partition_id`,`first_offset`),
  KEY `ems_log_open` (`state`,`deadline`),
  CONSTRAINT `ems_topic_group_log_chk_1` CHECK ((`attempt` >= 0)),
  CONSTRAINT `ems_topic_group_log_chk_2` CHECK ((`failed` >= 0)),
  CONSTRAINT `ems_topic_group_log_chk_3` CHECK ((`dead` >= 0)),
  CONSTRAINT `ems_topic_group_log_chk_4` CHECK ((`missing` >= 0)),
  CONSTRAINT `ems_topic_group_log_chk_5` CHECK ((`passed` >= 0)),
  CONSTRAINT `ems_topic_group_log_chk_6` CHECK ((`settled` >= 0))
) ENGINE=InnoDB AUTO_INCREMENT=28 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (1, 0, 4, 5, 'new', 1, 'streams.testing', 'MainThread', '72f66cb09c634beea04657e8b2d7da35', 'DONE', '2026-11-24 22:28:10.369383', '2026-11-24 22:28:10.401974', '2026-11-24 22:29:10.369383', '2026-11-24 22:28:10.417330', 0, 0, 0, 0, '', NULL, NULL, NULL, 1, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (4, 0, 0, 1, 'new', 1, 'streams.testing', 'MainThread', 'f7f89e30665f4fe6ac9034e008298382', 'RETRY', '2026-11-24 22:28:10.550864', '2026-11-24 22:28:10.610812', '2026-11-24 22:29:10.610812', '2026-11-24 22:28:10.655847', 1, 1, 0, 0, 'ValueError: no account for <script>alert(1)</script>', NULL, NULL, NULL, 4, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (7, 1, 1, 2, 'new', 1, 'streams.testing', 'MainThread', '8db814ec67d847a6a290adaead266fb5', 'RETRY', '2026-11-24 22:28:10.801283', '2026-11-24 22:28:10.868298', '2026-11-24 22:29:10.868298', '2026-11-24 22:28:10.911997', 1, 1, 0, 0, 'ValueError: no account for <script>alert(1)</script>', NULL, NULL, NULL, 4, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (10, 2, 2, 3, 'new', 1, 'streams.testing', 'MainThread', 'd443fc3f7d124883932583626be97e6b', 'RETRY', '2026-11-24 22:28:11.097205', '2026-11-24 22:28:11.142390', '2026-11-24 22:29:11.142390', '2026-11-24 22:28:11.183767', 1, 1, 0, 0, 'ValueError: no account for <script>alert(1)</script>', NULL, NULL, NULL, 4, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (13, 3, 3, 4, 'new', 1, 'streams.testing', 'MainThread', '5a56111fb5ce4f55b9922a3651eb94f0', 'DONE', '2026-11-24 22:28:11.274123', '2026-11-24 22:28:11.314288', '2026-11-24 22:29:11.314288', '2026-11-24 22:28:11.330544', 0, 0, 0, 0, '', NULL, NULL, NULL, 4, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (16, 4, 4, 5, 'new', 1, 'streams.testing', 'MainThread', '9bad8932abe34dd8b55b415760d92fd8', 'DONE', '2026-11-24 22:28:11.411466', '2026-11-24 22:28:11.453310', '2026-11-24 22:29:11.453310', '2026-11-24 22:28:11.469999', 0, 0, 0, 0, '', NULL, NULL, NULL, 4, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (19, 0, 4, 5, 'new', 1, 'streams.testing', 'MainThread', '98569c1758cc489bbc8b230799bdfbfc', 'RETRY', '2026-11-24 22:28:11.656626', '2026-11-24 22:28:11.693167', '2026-11-24 22:29:11.656626', '2026-11-24 22:28:11.716029', 2, 0, 0, 0, 'TimeoutError: the bank does not answer', NULL, '{"TimeoutError: the bank does not answer": [3, 4]}', NULL, 7, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (22, 4, 4, 4, 'new', 1, '10.0.0.1@7@abc', 'mail-0', 'secret-token', 'START', '2026-11-24 22:28:12.631905', NULL, '2026-11-24 22:29:12.630277', NULL, 0, 0, 0, 0, '', NULL, NULL, NULL, 1, 1);
INSERT INTO `ems_topic_group_log` (`id`, `first_offset`, `last_offset`, `progress`, `kind`, `attempt`, `client_id`, `thread`, `token`, `state`, `claimed_at`, `started_at`, `deadline`, `finished_at`, `failed`, `dead`, `missing`, `passed`, `error`, `parked`, `errors`, `settled`, `group_id`, `partition_id`) VALUES (25, 0, 9, 10, 'new', 1, 'streams.testing', 'MainThread', '052e3662c9904c17b68c240c1e1c2432', 'DONE', '2026-11-24 22:28:14.472162', '2026-11-24 22:28:14.493279', '2026-11-24 22:29:14.472162', '2026-11-24 22:28:14.504749', 0, 0, 0, 0, '', NULL, NULL, NULL, 10, 4);
CREATE TABLE `hostapp_handled` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `group` varchar(100) NOT NULL,
  `topic` varchar(100) NOT NULL,
  `partition` int NOT NULL,
  `offset` bigint NOT NULL,
  `value` longtext NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
CREATE TABLE `hostapp_order` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `number` varchar(40) NOT NULL,
  `note` longtext NOT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `number` (`number`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;
SET foreign_key_checks = 1;
