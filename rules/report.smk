rule claims:
    input:
        [],
