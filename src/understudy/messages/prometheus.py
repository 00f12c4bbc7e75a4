"""Rules about metrics: what they find, why they cannot be judged, and what is wrong with their configuration."""

from __future__ import annotations

from understudy.messages.base import Message

FOUND = Message(
    "US3140",
    "{rule}: {value:g}, which is {compare} {number:g}{lasting}: {expression}",
    cause="The value of a metric satisfies the rule, for as long as the rule requires.",
    remedy="Ask the author of the rule for the meaning of the metric. If healthy nodes satisfy it, change the rule.",
)
NO_ANSWER = Message(
    "US3141",
    "{server} does not answer the query of the rule {rule}: {reason}",
    cause="The query of this rule could not be sent to the Prometheus server, or its answer cannot be used. The rule reports nothing "
    "while this lasts.",
    remedy="Send the same query to the server by hand. The reason after the colon has its own code.",
)
NO_PAGE = Message(
    "US3142",
    "{exporter} cannot be read: {reason}",
    cause="The exporter's page could not be fetched or read. The rules that need it report nothing about its node while this lasts.",
    remedy="Fetch the page with curl on the same host. The reason after the colon has its own code.",
)
NO_PAGE_FOR_RULE = Message(
    "US3143",
    "{exporter} cannot be read for the rule {rule}: {reason}",
    cause="The exporter's page was fetched, but the metric of this rule cannot be read from it.",
    remedy="Check the lines of this metric on the page.",
)
ABSENT = Message(
    "US3144",
    "no exporter has {metric}, which the rule {rule} needs",
    cause="Pages of exporters were read, and none of them has the metric of this rule.",
    remedy="Correct the name of the metric in the rule, or turn the metric on in the exporter.",
)
NO_NODE = Message(
    "US3145",
    "a series of the rule {rule} names no node: it has no {labels}",
    cause="A series has none of the labels that identify the node.",
    remedy="Give node_label in the rule: the label that names the node. Or keep that label in the query.",
)
NO_PART = Message(
    "US3146",
    "a series of the rule {rule} names no part: there is no name in {labels}",
    cause="The rule is about a device or a link, and the series has no label that names one.",
    remedy="Give part_label in the rule, or write the rule about nodes.",
)
TOO_MUCH_FOUND = Message(
    "US3147",
    "{count} findings; only the first ones are reported",
    cause="The rules found more at once than is reported. A rule that applies to so many nodes is more likely wrong than all of them "
    "broken.",
    remedy="Check the rules.",
)

# Why an answer cannot be used.
BAD_CA_FILE = Message(
    "US3150",
    "the CA file cannot be used: {reason}",
    cause="The file that ca_file names cannot be read, or contains no certificates.",
    remedy="Correct ca_file in the detectors' file.",
)
TOO_SLOW = Message(
    "US3151",
    "no complete answer within {seconds:g} s",
    cause="The server or exporter did not answer completely within the limit of a request.",
    remedy="Check its load, or raise limit in the detectors' file.",
)
NOT_REACHED = Message(
    "US3152",
    "{kind}: {reason}",
    cause="The server or exporter could not be reached, or its answer is not HTTP. The text comes from the HTTP client.",
    remedy="Check the URL, and that a server answers there.",
)
BAD_STATUS = Message(
    "US3153",
    "status {status}{reason}",
    cause="The server refused the request. Its explanation is quoted.",
    remedy="Check the query for a status 400; a status 401 or 403 requires a token (token_file).",
)
COMPRESSED = Message(
    "US3154",
    "the answer is compressed, which was not requested",
    cause="The server sends compressed answers even to a client that requests plain ones. They are not unpacked, because their size would "
    "not be bounded.",
    remedy="Turn off compression in the server or in the proxy between.",
)
TOO_LONG = Message(
    "US3155",
    "the answer is longer than {most} bytes",
    cause="The answer is longer than the limit.",
    remedy="Make the query return less, or raise most in the detectors' file.",
)
BAD_TOKEN_FILE = Message(
    "US3156",
    "the token file cannot be read: {reason}",
    cause="The system refused to read the file that token_file names.",
    remedy="Correct the path or the permissions of the file.",
)
NO_TOKEN = Message(
    "US3157",
    "the token file contains no token",
    cause="The file that token_file names is empty, too long, or has characters that no token has.",
    remedy="Write only the token into the file.",
)
NO_VECTOR = Message(
    "US3158",
    "the answer is not an instant vector: {problem}",
    cause="The server is not a Prometheus server, or the query returns a scalar, a string or a range.",
    remedy="Send the same query to the server by hand. Wrap a scalar in vector().",
)
NO_NUMBER = Message(
    "US3159",
    "a value is not a number",
    cause="The answer has a value that cannot be read as a number.",
    remedy="Check the page or the answer with curl.",
)
NO_UTF8 = Message(
    "US3160",
    "the page is not UTF-8",
    cause="The server is not an exporter of metrics in Prometheus' text format.",
    remedy="Check the URL.",
)
TOO_MANY_SERIES = Message(
    "US3161",
    "the page has more than {most} series of {metric}",
    cause="The metric has more series on one page than are read.",
    remedy="Choose a metric with fewer labels, or use a query to a server.",
)
LINE_TOO_LONG = Message(
    "US3162",
    "a line of {metric} is longer than {most} characters",
    cause="A line of the page has very long labels.",
    remedy="Check the page. Choose another metric, or use a query to a server.",
)
BAD_LINE = Message(
    "US3163",
    "a line of {metric} cannot be read",
    cause="A line of the page is not in Prometheus' text format.",
    remedy="Check the lines of this metric on the page.",
)

# Mistakes in the configuration.
URL_WITHOUT_SCHEME = Message(
    "US3180",
    "a URL must begin with http:// or https:// and a host",
    cause="The URL of a server or an exporter is not complete.",
    remedy="Write it like http://host:9090.",
)
URL_WITH_PASSWORD = Message(
    "US3181",
    "a URL must not contain a user and password here: put a token into token_file",
    cause="A URL is shown in messages, so it must not contain secrets.",
    remedy="Put a bearer token into a file and name that file in token_file.",
)
URL_WITH_OTHERS = Message(
    "US3182",
    "a URL must not have a fragment, blanks or control characters",
    cause="The URL has characters that a request cannot have.",
    remedy="Remove it.",
)
TOKEN_IN_THE_CLEAR = Message(
    "US3183",
    "a token is sent to https:// only, or to this host: over http:// it could be read on the way",
    cause="token_file is given together with an http:// URL of another host.",
    remedy="Use https://, or leave token_file out.",
)
CA_WITHOUT_TLS = Message(
    "US3184",
    "ca_file is for https:// only",
    cause="ca_file is given together with an http:// URL.",
    remedy="Use https://, or leave ca_file out.",
)
QUERY_OR_SAMPLE = Message(
    "US3185",
    "give either query (of the server) or sample (on exporters' pages)",
    cause="A rule has both or neither.",
    remedy="Give the rule either a query in PromQL or the name of a metric (sample).",
)
LABELS_OF_A_QUERY = Message(
    "US3186",
    "labels and labels_not are for sample: a query contains its own matchers",
    cause="A rule with a query also has labels or labels_not.",
    remedy="Write the matchers into the query, as in metric{label='value'}.",
)
PART_OF_A_NODE = Message(
    "US3187",
    "part_label is for a device or a link: give subject",
    cause="A rule about nodes has a part_label.",
    remedy="Add subject = 'device' or subject = 'link', or leave part_label out.",
)
TWO_RULES = Message(
    "US3188",
    "two rules have the name {rule}",
    cause="Rules are distinguished by their names.",
    remedy="Give each rule a name that no other rule has.",
)
URL_WITH_QUERY = Message(
    "US3189",
    "the URL of a server must have nothing after a ?",
    cause="The query is appended to the server's URL, so the URL cannot have a query string itself.",
    remedy="Remove everything from the ? on.",
)
NO_SERVER = Message(
    "US3190",
    "a rule has a query, but no server is configured",
    cause="A query is answered by a Prometheus server, and none is configured.",
    remedy="Add server = {url = '...'}, or give the rule a sample instead of the query.",
)
NO_EXPORTERS = Message(
    "US3191",
    "a rule has a sample, but no exporters are configured",
    cause="A sample is read from exporters' pages, and none is configured.",
    remedy="Add exporters, or give the rule a query instead of the sample.",
)
NO_URL = Message(
    "US3192",
    "this is not a URL",
    cause="The URL of a server or an exporter cannot be parsed, for example because of its port.",
    remedy="Write it like http://host:9090.",
)
