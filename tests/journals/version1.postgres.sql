CREATE TABLE events (
    seq SERIAL NOT NULL, 
    job TEXT NOT NULL, 
    now DOUBLE PRECISION NOT NULL, 
    event TEXT NOT NULL, 
    PRIMARY KEY (seq)
);

CREATE INDEX ix_events_job ON events (job);

CREATE TABLE jobs (
    number SERIAL NOT NULL, 
    job TEXT NOT NULL, 
    settings TEXT NOT NULL, 
    request TEXT NOT NULL, 
    PRIMARY KEY (number), 
    UNIQUE (job)
);

CREATE TABLE lease (
    number INTEGER NOT NULL, 
    holder TEXT NOT NULL, 
    fence INTEGER NOT NULL, 
    until DOUBLE PRECISION NOT NULL, 
    PRIMARY KEY (number)
);

CREATE TABLE progress (
    job TEXT NOT NULL, 
    worker TEXT NOT NULL, 
    page TEXT NOT NULL, 
    PRIMARY KEY (job, worker)
);

CREATE TABLE version (
    version INTEGER NOT NULL, 
    PRIMARY KEY (version)
);
